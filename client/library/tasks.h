// tasks.h - operations of several threads, which run one after the other (any thread)
#pragma once

#include "client/library/context.h"

// Makes gradlane_next() return GRADLANE_DAEMON_GONE as soon as no task is left to report. The caller holds the lock and
// has ended the connection.
void gl_end_tasks(gradlane_context* gl);
void gl_free_tasks(gradlane_context* gl);
