// context.c - a context: its end, its error text, what it knows (the thread of the context)
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "client/internal.h"

// Of calls that have no context to keep it in.
static _Thread_local char open_error[GL_ERROR_TEXT];

gradlane_code gl_fail(gradlane_context* gl, gradlane_code code, const char* format, ...) {
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(gl != NULL ? gl->error : open_error, GL_ERROR_TEXT, format, arguments);
  va_end(arguments);
  return code;
}

const char* gradlane_error(const gradlane_context* gl) { return gl != NULL ? gl->error : open_error; }

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

void gradlane_close(gradlane_context* gl) {
  if (gl == NULL) return;
  // To the daemon the end of the connection cancels everything.
  gl_close_fd(&gl->socket);
  gl_close_fd(&gl->epoll_fd);
  gl_close_fd(&gl->over_fd);
  gl_close_fd(&gl->completion_fd);
  for (unsigned i = 0; i < GL_MAX_LANES; ++i) gl_close_fd(&gl->doorbells[i]);
  gl_unmap_buffers(gl);
  if (gl->control != NULL) (void)munmap(gl->control, gl->welcome.control_bytes);
  free(gl->codecs.entries);
  free(gl);
}

void gradlane_disconnect(gradlane_context* gl) {
  if (gl == NULL) return;
  gl_gone(gl, "this program has disconnected from the daemon at %s", gl->address.sun_path);
  gl_update_fd(gl);
}

int gradlane_version(void) { return GRADLANE_API_VERSION; }

int gradlane_rank(const gradlane_context* gl) { return gl != NULL ? (int)gl->welcome.rank : -1; }

int gradlane_world(const gradlane_context* gl) { return gl != NULL ? (int)gl->welcome.world : -1; }

const char* gradlane_codec(const gradlane_context* gl) { return gl != NULL ? gl->welcome.codec : ""; }

gradlane_code gradlane_resume(gradlane_context* gl, uint64_t next_tag) {
  if (gl == NULL) return gl_fail(NULL, GRADLANE_BAD_ARGUMENT, "gradlane_resume: the context is NULL");
  if (gl->gone) return gl_fail(gl, GRADLANE_DAEMON_GONE, "%s", gl->gone_text);
  gl->next_tag = next_tag;
  const struct gl_submission resume = {.kind = GL_RESUME};
  return gl_submit(gl, &resume);
}

gradlane_code gradlane_get_figures(gradlane_context* gl, gradlane_figures* figures) {
  if (gl == NULL) return gl_fail(NULL, GRADLANE_BAD_ARGUMENT, "gradlane_get_figures: the context is NULL");
  if (figures == NULL || figures->struct_size != sizeof(*figures)) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "gradlane_get_figures: struct_size is %zu; set it to %zu",
                   figures != NULL ? figures->struct_size : 0, sizeof(*figures));
  }
  figures->operations = gl->operations;
  figures->data_bytes = 0;
  figures->data_packets = 0;
  figures->retransmitted = 0;
  for (unsigned i = 0; i < gl->welcome.lanes; ++i) {
    const struct gl_lane* const lane = &gl->lanes[i];
    figures->data_bytes += __atomic_load_n(&lane->data_bytes, __ATOMIC_RELAXED);
    figures->data_packets += __atomic_load_n(&lane->data_packets, __ATOMIC_RELAXED);
    figures->retransmitted += __atomic_load_n(&lane->retransmitted, __ATOMIC_RELAXED);
  }
  return GRADLANE_OK;
}
