// base.h - what all files of the library use, and what uses none of them: errors, arguments, file descriptors (any
// thread, as to contexts the thread of the context)
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "client/gradlane.h"

enum { GL_ERROR_TEXT = 512 };

// What a context begins with.
struct gl_base {
  pid_t owner;           // the process that has opened it
  gradlane_cause cause;  // of the error, where that is a failed operation's
  char error[GL_ERROR_TEXT];
  bool shared;  // by several threads; the lock is theirs
  pthread_mutex_t lock;
};

// Keeps the text for gradlane_error() and returns the code. `gl` NULL: for gradlane_error(NULL).
gradlane_code gl_fail(gradlane_context* gl, gradlane_code code, const char* format, ...)
    __attribute__((format(printf, 3, 4)));
// Locks a shared context of this process, and returns it; any other one needs no lock, and the answer is NULL. The lock
// is recursive. gl_leave() takes that answer.
gradlane_context* gl_enter(gradlane_context* gl);
void gl_leave(gradlane_context* entered);
static inline void gl_leave_scope(gradlane_context* const* entered) { gl_leave(*entered); }
// Holds the lock to the end of the scope.
#define GL_LOCK(gl) gradlane_context* const gl_entered __attribute__((cleanup(gl_leave_scope), unused)) = gl_enter(gl)
// Whether there is a context, of this process; one that is shared is locked. `call` is for the text.
gradlane_code gl_check_context(gradlane_context* gl, const char* call);
// Reads a struct of the caller's, which may be that of an older header: it then has at least `least` bytes, and what it
// does not have stays as it is in `out`. False: no version has a struct of this size.
bool gl_read_struct(void* out, size_t size, size_t least, const void* in);
// A time limit of the caller's; 0 stays 0.
gradlane_code gl_read_limit(gradlane_context* gl, const char* call, int64_t ms, uint32_t* out);
void gl_close_fd(int* fd);
