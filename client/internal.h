// internal.h - what the files of the client library share
//
// A context belongs to one thread, so nothing here is locked. What a daemon writes into shared memory is copied, then
// checked: whatever is there, the worst that follows is GRADLANE_DAEMON_GONE.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/un.h>

#include "client/abi.h"
#include "client/gradlane.h"

_Static_assert(GRADLANE_MAX_REQUESTS == GL_SLOTS, "a ring has room for all requests");

enum { GL_ERROR_TEXT = 512 };

struct gl_codec_cache {
  struct gl_codec_name* entries;
  size_t count;
};

// Memory shared with the daemon; several buffers lie in one.
struct gl_mapping {
  uint8_t* base;  // NULL: no such segment
  size_t bytes;
};

struct gl_buffer {
  uint8_t* base;
  size_t bytes;      // as asked for
  uint32_t segment;  // which it lies in
};

// Sorted by address.
struct gl_buffers {
  struct gl_buffer* entries;
  size_t count;
  size_t room;
};

struct gl_range {
  uint8_t* base;  // NULL: none
  size_t bytes;
};

enum gl_request_state { GL_FREE, GL_RUNNING, GL_OVER };

struct gl_request {
  enum gl_request_state state;
  uint64_t cookie;      // generation << 8 | slot; the caller's gradlane_request
  uint32_t lanes_left;  // bit i: lane i has not completed it
  uint32_t lanes_failed;
  gradlane_code code;    // how it has ended, as far as known
  struct gl_range data;  // in use until the caller knows of the end
  struct gl_range residual;
  char text[GL_ERROR_TEXT];     // of the first lane that failed
  uint32_t ends[GL_MAX_LANES];  // of each lane that failed, at that time
};

// The library's own counts of a ring: what others could have written over is not read back.
struct gl_ring {
  uint32_t submit_tail;
  uint32_t complete_head;
  uint32_t ends_seen;  // the lane's `ends`, as far as the caller has been told
};

struct gradlane_context {
  int socket;
  int completion_fd;
  int doorbells[GL_MAX_LANES];
  struct sockaddr_un address;
  struct gl_welcome welcome;  // checked
  int spin_us;

  struct gl_control* control;
  struct gl_lane* lanes;
  struct gl_ring rings[GL_MAX_LANES];

  struct gl_mapping segments[GL_MAX_SEGMENTS];
  struct gl_buffers buffers;
  struct gl_codec_cache codecs;  // the first is that of the daemon's configuration

  struct gl_request requests[GL_SLOTS];
  unsigned over;  // requests in state GL_OVER
  uint64_t generation;
  uint64_t next_tag;
  uint64_t operations;  // ended

  // Of gradlane_fd(), -1 before: an epoll instance over completion_fd, socket and over_fd, the last of which is
  // readable while `over` is not 0.
  int epoll_fd;
  int over_fd;
  bool over_signalled;

  // Whether the daemon runs: the sum of its lanes' beats, when it was looked at, and for how long it has not changed.
  uint64_t beats;
  int64_t looked_us;
  int64_t still_us;

  bool gone;
  char gone_text[GL_ERROR_TEXT];
  char error[GL_ERROR_TEXT];
};

// ---- context.c

// Keeps the text for gradlane_error() and returns the code. `gl` NULL: for gradlane_error(NULL).
gradlane_code gl_fail(gradlane_context* gl, gradlane_code code, const char* format, ...)
    __attribute__((format(printf, 3, 4)));
void gl_close_fd(int* fd);
int64_t gl_now_us(void);  // monotonic

// ---- socket.c: system calls with EINTR and file descriptors taken care of

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

// 0 or an errno.
int gl_send(int socket, const void* message, size_t bytes);

// Waits for a message of at most sizeof(union gl_message) bytes; texts in it end. Returns its bytes, or 0: the other
// side has closed; or -1 and errno: ETIMEDOUT, EPROTO (longer than any message). timeout_ms 0 does not wait.
ssize_t gl_receive(int socket, union gl_message* message, struct gl_fds* fds, int timeout_ms);

void gl_close_fds(struct gl_fds* fds);

// Sends a request, waits for the answer of type `wanted` and `bytes` bytes. If the daemon refuses: code `refused`, and
// its text. Anything else but the answer ends the connection.
gradlane_code gl_ask(gradlane_context* gl, const void* request, size_t request_bytes, uint32_t wanted, size_t bytes,
                     gradlane_code refused, union gl_message* answer, struct gl_fds* fds);

// Reads what the daemon has sent unasked, if anything: a goodbye, or the end.
void gl_hear(gradlane_context* gl);

// ---- codecs.c

// What the daemon calls `name` (NULL: its configuration's).
gradlane_code gl_find_codec(gradlane_context* gl, const char* name, struct gl_codec_name* codec);

// ---- buffers.c

// The buffer that holds `address`, or NULL.
const struct gl_buffer* gl_find_buffer(const gradlane_context* gl, const void* address);
void gl_unmap_buffers(gradlane_context* gl);

// ---- check.c

// What an operation's arguments say, checked; cookie not filled in.
struct gl_operation {
  struct gl_submission submission;
  struct gl_range data;
  struct gl_range residual;
};

gradlane_code gl_check_operation(gradlane_context* gl, enum gl_submission_kind kind, void* data, size_t count,
                                 gradlane_type type, int root, const gradlane_how* how, struct gl_operation* operation);

// ---- submit.c

// Puts an entry into every lane's ring, if all have room.
gradlane_code gl_submit(gradlane_context* gl, const struct gl_submission* submission);

// ---- progress.c

// Takes what the lanes have completed.
void gl_progress(gradlane_context* gl);

// The connection is of no use any more: takes what was completed, fails all else.
void gl_gone(gradlane_context* gl, const char* format, ...) __attribute__((format(printf, 2, 3)));

// The unfinished request of this number, or NULL.
struct gl_request* gl_find_request(gradlane_context* gl, gradlane_request request);
// The unfinished request that uses any of these bytes, or NULL.
const struct gl_request* gl_find_user(const gradlane_context* gl, const void* base, size_t bytes);

// Makes what gradlane_fd() has given readable or not.
void gl_update_fd(gradlane_context* gl);
