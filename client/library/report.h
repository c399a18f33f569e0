// report.h - what became of classes of operations, for people who ask the daemon (the thread of the context)
#pragma once

#include "client/library/context.h"

// The row of the class with this number; NULL: there is none.
struct gl_report_row* gl_report_of(gradlane_context* gl, unsigned number);
// Something else than counts may have changed.
void gl_report(const struct gl_choice_class* it);
// Counts alone have.
void gl_count_report(const struct gl_choice_class* it);
// Choices begin afresh: rows of classes that were say nothing any more.
void gl_forget_reports(gradlane_context* gl);
// Sums that a codec is named or configured for, and that go through none: once for each kind and type.
void gl_report_exact(gradlane_context* gl, const struct gl_operation* operation, const char* codec);
