// base.c - errors, arguments and file descriptors (any thread; for a context, the thread of the context)
#include "client/library/base.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

// The latest error of calls that have no context to keep it in.
static _Thread_local char open_error[GL_ERROR_TEXT];

// The latest error of this thread about a shared context.
static _Thread_local struct {
  const gradlane_context* gl;
  char error[GL_ERROR_TEXT];
} shared_error;

static char* error_of(gradlane_context* gl) { return gl != NULL ? ((struct gl_base*)gl)->error : open_error; }

static bool is_here(const gradlane_context* gl) { return ((const struct gl_base*)gl)->owner == getpid(); }

// The shared context that this thread has locked, and how often.
static _Thread_local struct {
  const gradlane_context* gl;
  unsigned times;
} locked;

gradlane_context* gl_enter(gradlane_context* gl) {
  if (gl == NULL || !((struct gl_base*)gl)->shared || !is_here(gl)) return NULL;
  (void)pthread_mutex_lock(&((struct gl_base*)gl)->lock);
  locked.times = locked.gl == gl ? locked.times + 1 : 1;
  locked.gl = gl;
  return gl;
}

void gl_leave(gradlane_context* entered) {
  if (entered == NULL) return;
  if (--locked.times == 0) locked.gl = NULL;
  (void)pthread_mutex_unlock(&((struct gl_base*)entered)->lock);
}

gradlane_code gl_fail(gradlane_context* gl, gradlane_code code, const char* format, ...) {
  if (gl != NULL) ((struct gl_base*)gl)->cause = GRADLANE_CAUSE_NONE;
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(error_of(gl), GL_ERROR_TEXT, format, arguments);
  va_end(arguments);
  if (gl != NULL && ((struct gl_base*)gl)->shared) {
    shared_error.gl = gl;
    memcpy(shared_error.error, ((struct gl_base*)gl)->error, GL_ERROR_TEXT);
  }
  return code;
}

const char* gradlane_error(const gradlane_context* gl) {
  if (gl == NULL) return open_error;
  if (!((const struct gl_base*)gl)->shared) return ((const struct gl_base*)gl)->error;
  return shared_error.gl == gl ? shared_error.error : "";
}

gradlane_cause gradlane_get_cause(const gradlane_context* gl) {
  return gl != NULL ? ((const struct gl_base*)gl)->cause : GRADLANE_CAUSE_NONE;
}

gradlane_code gl_check_context(gradlane_context* gl, const char* call) {
  if (gl == NULL) return gl_fail(NULL, GRADLANE_BAD_ARGUMENT, "%s: the context is NULL", call);
  const pid_t here = getpid();
  const pid_t owner = ((const struct gl_base*)gl)->owner;
  if (here == owner && ((const struct gl_base*)gl)->shared && locked.gl != gl) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT,
                   "%s: threads share the context (gradlane_share), so it takes only tasks: gradlane_add()", call);
  }
  if (here == owner) return GRADLANE_OK;
  return gl_fail(gl, GRADLANE_BAD_ARGUMENT,
                 "%s: process %d opened this context, and this is its child %d (fork): open a new context in the child",
                 call, (int)owner, (int)here);
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
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "%s: time limit is %lld ms; allowed: 0 (the default) to %u", call,
                   (long long)ms, UINT32_MAX);
  }
  *out = (uint32_t)ms;
  return GRADLANE_OK;
}

void gl_close_fd(int* fd) {
  // Linux closes the descriptor even if close() fails with EINTR.
  if (*fd >= 0) (void)close(*fd);
  *fd = -1;
}
