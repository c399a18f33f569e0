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

// These functions try again after EINTR.
//
// Sends a message. Returns 0 or an errno.
int gl_send(int socket, const void* message, size_t bytes);

// Waits for a message of at most sizeof(union gl_message) bytes; its texts end with 0. Returns its bytes, or 0 if the
// other side has closed. Returns -1 and sets errno if it fails: ETIMEDOUT, or EPROTO if the message is longer than any.
// It does not wait if timeout_ms is 0.
ssize_t gl_receive(int socket, union gl_message* message, struct gl_fds* fds, int timeout_ms);

void gl_close_fds(struct gl_fds* fds);
