// message.h - messages to and from the daemon, with file descriptors (the thread of the context)
#pragma once

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "client/abi.h"

union gl_message {
  uint32_t type;
  struct gl_welcome welcome;
  struct gl_segment segment;
  struct gl_codec_name codec;
  struct gl_text text;
};

enum { GL_MAX_FDS = 2 + GL_MAX_LANES };

struct gl_fds {
  int fd[GL_MAX_FDS];
  unsigned count;
};

// All of them go on after EINTR.
//
// 0 or an errno.
int gl_send(int socket, const void* message, size_t bytes);

// Waits for a message of at most sizeof(union gl_message) bytes; texts in it end. Returns its bytes, or 0: the other
// side has closed; or -1 and errno: ETIMEDOUT, EPROTO (longer than any message). timeout_ms 0 does not wait.
ssize_t gl_receive(int socket, union gl_message* message, struct gl_fds* fds, int timeout_ms);

void gl_close_fds(struct gl_fds* fds);
