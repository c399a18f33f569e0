// base.h - the basics that all files of the library use: errors, arguments, file descriptors (any thread; for a
// context, the thread of the context)
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "client/gradlane.h"

enum { GL_ERROR_TEXT = 512 };

// The part of a context that base.c knows.
struct gl_base {
  pid_t owner;           // the process that has opened it
  gradlane_cause cause;  // cause of the error if an operation failed, else GRADLANE_CAUSE_NONE
  char error[GL_ERROR_TEXT];
  bool shared;  // several threads use the context, under the lock
  pthread_mutex_t lock;
};

// Keeps the text for gradlane_error() and returns the code. If `gl` is NULL, the text is for gradlane_error(NULL).
gradlane_code gl_fail(gradlane_context* gl, gradlane_code code, const char* format, ...)
    __attribute__((format(printf, 3, 4)));
// Locks a context if it is shared and belongs to this process, and returns it. Returns NULL for any other context,
// which needs no lock. The lock is recursive. gl_leave() takes what gl_enter() has returned.
gradlane_context* gl_enter(gradlane_context* gl);
void gl_leave(gradlane_context* entered);
static inline void gl_leave_scope(gradlane_context* const* entered) { gl_leave(*entered); }
// Holds the lock to the end of the scope.
#define GL_LOCK(gl) gradlane_context* const gl_entered __attribute__((cleanup(gl_leave_scope), unused)) = gl_enter(gl)
// Checks that there is a context, that this process has opened it, and that it is locked if it is shared. `call` is for
// the error text.
gradlane_code gl_check_context(gradlane_context* gl, const char* call);
// Copies a struct of the caller into `out`. If the caller was built with an older header, the struct is shorter, but
// has at least `least` bytes. The fields that it lacks keep their values in `out`. Returns false if no version has a
// struct of this size.
bool gl_read_struct(void* out, size_t size, size_t least, const void* in);
// Reads a time limit of the caller's; 0 stays 0. Refuses a negative one, and one that needs more than 32 bits.
gradlane_code gl_read_limit(gradlane_context* gl, const char* call, int64_t ms, uint32_t* out);
void gl_close_fd(int* fd);
