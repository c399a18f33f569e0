// report.h - reports on classes of operations, for people who ask the daemon (the thread of the context)
#pragma once

#include "client/library/context.h"

// Returns the row of the class with this number; NULL: there is none.
struct gl_report_row* gl_report_of(gradlane_context* gl, unsigned number);
// Updates the whole row of a class. Call it when more than the counts may have changed.
void gl_report(const struct gl_choice_class* it);
// Updates the counts in the row of a class.
void gl_count_report(const struct gl_choice_class* it);
// Clears the rows of all classes, as choices start again.
void gl_forget_reports(gradlane_context* gl);
// Counts a sum that goes through no codec although one is named or configured. There is one row for each kind and type.
void gl_report_exact(gradlane_context* gl, const struct gl_operation* operation, const char* codec);
