// check.h - checks of an operation's arguments, before anything happens (the thread of the context)
#pragma once

#include "client/library/context.h"

// Reads the options of the caller, which may be NULL or of an older header. `call` is for error texts.
gradlane_code gl_read_how(gradlane_context* gl, const char* call, const gradlane_how* given, gradlane_how* how);
// Checks the arguments of an operation and fills in `operation`. `target` is where an all-to-all puts its output; NULL
// for other kinds.
gradlane_code gl_check_operation(gradlane_context* gl, enum gl_submission_kind kind, void* data, void* target,
                                 size_t count, gradlane_type type, int root, const gradlane_how* how,
                                 struct gl_operation* operation);
