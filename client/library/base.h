// base.h - what all files of the library use, and what uses none of them: errors, arguments, file descriptors (any
// thread, as to contexts the thread of the context)
#pragma once

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
};

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
