// check.h - arguments of operations, before anything happens (the thread of the context)
#pragma once

#include "client/library/context.h"

// `target`: where an all-to-all puts what comes; NULL: of other kinds.
gradlane_code gl_check_operation(gradlane_context* gl, enum gl_submission_kind kind, void* data, void* target,
                                 size_t count, gradlane_type type, int root, const gradlane_how* how,
                                 struct gl_operation* operation);
