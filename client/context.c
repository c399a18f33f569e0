// context.c - a context: its end, its error text, what it knows (the thread of the context)
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "client/internal.h"

// Of calls that have no context to keep it in.
static _Thread_local char open_error[GL_ERROR_TEXT];

// Of gradlane_figures, since version 1.
enum { kLeastFigures = offsetof(gradlane_figures, retransmitted) + sizeof(uint64_t) };

gradlane_code gl_fail(gradlane_context* gl, gradlane_code code, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(gl != NULL ? gl->error : open_error, GL_ERROR_TEXT, format, arguments);
  va_end(arguments);
  return code;
}

const char* gradlane_error(const gradlane_context* gl) { return gl != NULL ? gl->error : open_error; }

gradlane_code gl_check_context(gradlane_context* gl, const char* call) {
  if (gl == NULL) return gl_fail(NULL, GRADLANE_BAD_ARGUMENT, "%s: the context is NULL", call);
  const pid_t here = getpid();
  if (here == gl->owner) return GRADLANE_OK;
  return gl_fail(
      gl, GRADLANE_BAD_ARGUMENT,
      "%s: the context was opened by process %d, and this is %d, a child of fork(): open a context of its own", call,
      (int)gl->owner, (int)here);
}

bool gl_read_struct(void* out, size_t size, size_t least, const void* in) {
  size_t given;
  memcpy(&given, in, sizeof(given));
  if (given < least || given > size || given % 8 != 0) return false;
  memcpy(out, in, given);
  return true;
}

gradlane_code gl_read_limit(gradlane_context* gl, const char* call, int64_t ms, uint32_t* out) {
  if (ms < 0 || ms > UINT32_MAX) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "%s: a time limit of %lld ms; 0 (the default) to %u", call, (long long)ms,
                   UINT32_MAX);
  }
  *out = (uint32_t)ms;
  return GRADLANE_OK;
}

void gl_close_fd(int* fd) {
  // Linux closes it even if it says EINTR.
  if (*fd >= 0) (void)close(*fd);
  *fd = -1;
}

int64_t gl_now_us(void) {
  struct timespec now;
  (void)clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

static void close_descriptors(gradlane_context* gl) {
  gl_close_fd(&gl->socket);
  gl_close_fd(&gl->epoll_fd);
  gl_close_fd(&gl->over_fd);
  gl_close_fd(&gl->completion_fd);
  for (unsigned i = 0; i < GL_MAX_LANES; ++i) gl_close_fd(&gl->doorbells[i]);
}

void gradlane_close(gradlane_context* gl) {
  if (gl == NULL) return;
  // To the daemon the end of the connection cancels everything. That closing alone would not end it while a child of
  // fork() has the socket too; and for that child, it is not its to end.
  if (gl->socket >= 0 && getpid() == gl->owner) (void)shutdown(gl->socket, SHUT_RDWR);
  close_descriptors(gl);
  gl_unmap_buffers(gl);
  if (gl->control != NULL) (void)munmap(gl->control, gl->welcome.control_bytes);
  gl_free_requests(gl);
  free(gl->names.entries);
  free(gl);
}

void gradlane_disconnect(gradlane_context* gl) {
  if (gl_check_context(gl, "gradlane_disconnect") != GRADLANE_OK) {
    // As long as a child of fork() has the socket, the daemon does not see that its parent was killed.
    if (gl != NULL) close_descriptors(gl);
    return;
  }
  gl_gone(gl, "this program has disconnected from the daemon at %s", gl->address.sun_path);
  gl_update_fd(gl);
}

int gradlane_version(void) { return GRADLANE_API_VERSION; }

int gradlane_rank(const gradlane_context* gl) { return gl != NULL ? (int)gl->welcome.rank : -1; }

int gradlane_world(const gradlane_context* gl) { return gl != NULL ? (int)gl->welcome.world : -1; }

int gradlane_local_reduce(const gradlane_context* gl) {
  return gl != NULL && (gl->welcome.flags & GL_WELCOME_LOCAL_REDUCE) != 0 ? 1 : 0;
}

const char* gradlane_codec(const gradlane_context* gl) { return gl != NULL ? gl->welcome.codec : ""; }

gradlane_code gradlane_get_figures(gradlane_context* gl, gradlane_figures* figures) {
  const gradlane_code code = gl_check_context(gl, "gradlane_get_figures");
  if (code != GRADLANE_OK) return code;
  gradlane_figures all = {.struct_size = sizeof(all)};
  if (figures == NULL || !gl_read_struct(&all, sizeof(all), kLeastFigures, figures)) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "gradlane_get_figures: struct_size is %zu; set it to %zu",
                   figures != NULL ? figures->struct_size : 0, sizeof(all));
  }
  all.operations = gl->operations;
  all.data_bytes = all.data_packets = all.retransmitted = 0;
  for (unsigned i = 0; i < gl->welcome.lanes; ++i) {
    const struct gl_lane* const lane = &gl->lanes[i];
    all.data_bytes += __atomic_load_n(&lane->data_bytes, __ATOMIC_RELAXED);
    all.data_packets += __atomic_load_n(&lane->data_packets, __ATOMIC_RELAXED);
    all.retransmitted += __atomic_load_n(&lane->retransmitted, __ATOMIC_RELAXED);
  }
  all.lossy_values = gl->losses.total.values;
  all.lossy_zeroed = gl->losses.total.zeroed;
  all.lossy_squares = gl->losses.total.squares;
  all.lossy_lost_squares = gl->losses.total.lost_squares;
  memcpy(figures, &all, all.struct_size);
  return GRADLANE_OK;
}
