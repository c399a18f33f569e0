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

enum { GL_ERROR_TEXT = 512 };

// What the daemon has answered, by name.
struct gl_codec_cache {
  struct gl_codec_name* entries;
  size_t count;
};

// A copy of the daemon's table, with texts that end.
struct gl_codecs {
  struct gl_codec_row rows[GL_MAX_CODECS];
  uint32_t count;
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

// What an operation's arguments say, checked.
struct gl_operation {
  struct gl_submission submission;  // of all parts: cookie and what is a part's own are not filled in
  struct gl_range data;             // in use until the caller knows of the end
  struct gl_range residual;
  uint64_t each;  // elements of each part but the last
  uint64_t parts;
  uint64_t whole;  // elements of the caller's tensor, of which this may be a part
  uint32_t width;  // bytes of an element
  bool blocks;     // one per rank
  bool pays;       // too small for a codec: the residual is added to the data
};

// A class of tensors that the caller is, or was, to be warned of.
struct gl_loss_warning {
  uint64_t elements;
  uint8_t kind;
  uint8_t codec;
  uint8_t param;
  bool untold;
  char text[GL_ERROR_TEXT];
};

// More are not warned of: whoever has not heeded so many has decided.
enum { GL_LOSS_WARNINGS = 16 };

struct gl_losses {
  struct gl_loss total;
  bool keep;  // warnings are for gradlane_warning(), not for stderr
  unsigned count;
  struct gl_loss_warning warnings[GL_LOSS_WARNINGS];
};

enum gl_request_state { GL_FREE, GL_RUNNING, GL_OVER };

// An operation of the caller's, from the call until the caller knows how it ended. To the daemon it is one or more
// parts, each with a cookie.
struct gl_request {
  enum gl_request_state state;
  uint64_t number;  // count << GL_INDEX_BITS | index; the caller's gradlane_request
  struct gl_operation operation;
  uint64_t begun;                    // parts that have been put into the rings,
  uint64_t ended;                    //   and that all lanes have completed
  bool cancelled;                    // or a part has failed: what has not begun fails, too, and keeps its place
  gradlane_code code;                // how it has ended, as far as known
  uint32_t lanes_failed;             // bit i: lane i
  uint32_t ends[GL_MAX_LANES];       // of each lane that failed, at that time
  uint32_t ends_seen[GL_MAX_LANES];  // at the time of the call
  struct gl_loss loss;               // of all parts
  struct gl_request* next;           // in the queue, or free
  char text[GL_ERROR_TEXT];          // of the first lane that failed
};

enum { GL_INDEX_BITS = 24 };

// A part in the rings.
struct gl_flight {
  uint64_t cookie;
  struct gl_request* request;
  uint64_t part;
  uint32_t lanes_left;  // bit i: lane i has not completed it
  bool cancel;          // the lanes are to be told, when their rings have room
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
  pid_t owner;                // the process that has opened it
  int spin_us;
  uint32_t timeout_ms;  // of operations that name none; 0: the daemon's

  struct gl_control* control;
  struct gl_lane* lanes;
  struct gl_ring rings[GL_MAX_LANES];

  struct gl_mapping segments[GL_MAX_SEGMENTS];
  struct gl_buffers buffers;
  struct gl_codecs codecs;
  struct gl_codec_cache names;  // the first is that of the daemon's configuration

  // All that there are, by index; `free` is a list of those in state GL_FREE.
  struct gl_request** requests;
  size_t request_count;
  size_t request_room;
  struct gl_request* free;
  size_t over;       // requests in state GL_OVER
  uint64_t started;  // requests, ever
  uint64_t next_tag;
  uint64_t operations;  // ended

  // On the way to the daemon, in this order: cancels, a resume, and requests of which not all parts have begun.
  struct gl_flight flights[GL_SLOTS];
  unsigned flight_count;
  uint64_t cookies;  // ever used
  bool cancelling;   // some of these are to be
  bool resuming;
  struct gl_request* first;
  struct gl_request* last;
  bool blocked;  // something waits for room in a ring, of which the daemon does not tell

  // Of gradlane_fd(), -1 before: an epoll instance over completion_fd, socket and over_fd, the last of which is
  // readable while `over` is not 0, or `blocked`.
  int epoll_fd;
  int over_fd;
  bool over_signalled;

  // Whether the daemon runs: the sum of its lanes' beats, when it was looked at, and for how long it has not changed.
  uint64_t beats;
  int64_t looked_us;
  int64_t still_us;

  struct gl_losses losses;

  bool gone;
  char gone_text[GL_ERROR_TEXT];
  char error[GL_ERROR_TEXT];
};

// ---- context.c

// Keeps the text for gradlane_error() and returns the code. `gl` NULL: for gradlane_error(NULL).
gradlane_code gl_fail(gradlane_context* gl, gradlane_code code, const char* format, ...)
    __attribute__((format(printf, 3, 4)));
// Whether there is a context, of this process. `call` is for the text.
gradlane_code gl_check_context(gradlane_context* gl, const char* call);
// Reads a struct of the caller's, which may be that of an older header: it then has at least `least` bytes, and what it
// does not have stays as it is in `out`. False: no version has a struct of this size.
bool gl_read_struct(void* out, size_t size, size_t least, const void* in);
// A time limit of the caller's; 0 stays 0.
gradlane_code gl_read_limit(gradlane_context* gl, const char* call, int64_t ms, uint32_t* out);
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

// Copies the daemon's table out of the control segment of `bytes` bytes. False: it makes no sense.
bool gl_read_codecs(gradlane_context* gl, size_t bytes);
// What the daemon calls `name` (NULL: its configuration's).
gradlane_code gl_find_codec(gradlane_context* gl, const char* name, struct gl_codec_name* codec);
// The name of a codec with this capability, one of GL_CODEC_...; NULL: the daemon tells of none.
const char* gl_codec_with(const gradlane_context* gl, uint32_t flag);

// ---- buffers.c

// The buffer that holds `address`, or NULL.
const struct gl_buffer* gl_find_buffer(const gradlane_context* gl, const void* address);
void gl_unmap_buffers(gradlane_context* gl);

// ---- check.c

gradlane_code gl_check_operation(gradlane_context* gl, enum gl_submission_kind kind, void* data, size_t count,
                                 gradlane_type type, int root, const gradlane_how* how, struct gl_operation* operation);

// ---- queue.c

// Puts the request behind all others.
void gl_enqueue(gradlane_context* gl, struct gl_request* request);
// Puts into the rings what they have room for.
void gl_advance(gradlane_context* gl);
// Fails what has not begun, of all requests.
void gl_drop_queue(gradlane_context* gl, gradlane_code code, const char* text);
// Has the lanes told that this one is given up.
void gl_cancel_request(gradlane_context* gl, struct gl_request* request);

// ---- requests.c

// A new one in state GL_RUNNING, or NULL: no memory.
struct gl_request* gl_new_request(gradlane_context* gl, const struct gl_operation* operation);
void gl_release_request(gradlane_context* gl, struct gl_request* request);
void gl_free_requests(gradlane_context* gl);
// The unfinished request of this number, or NULL.
struct gl_request* gl_find_request(gradlane_context* gl, gradlane_request number);
// The unfinished request that uses any of these bytes, or NULL.
const struct gl_request* gl_find_user(const gradlane_context* gl, const void* base, size_t bytes);
// It is over.
void gl_end_request(gradlane_context* gl, struct gl_request* request);

// ---- loss.c

// Counts what a codec has taken away from an operation that succeeded, and warns if it is much.
void gl_note_loss(gradlane_context* gl, const struct gl_operation* operation, const struct gl_loss* loss);
void gl_add_loss(struct gl_loss* to, const struct gl_loss* loss);

// ---- progress.c

// Takes what the lanes have completed, and has them go on with what waits.
void gl_progress(gradlane_context* gl);

// The connection is of no use any more: takes what was completed, fails all else.
void gl_gone(gradlane_context* gl, const char* format, ...) __attribute__((format(printf, 2, 3)));

// Makes what gradlane_fd() has given readable or not.
void gl_update_fd(gradlane_context* gl);
