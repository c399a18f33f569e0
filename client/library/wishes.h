// wishes.h - the name `auto`: a codec that is to be chosen, within a bound (the thread of the context)
#pragma once

#include "client/library/context.h"

// What it stands for.
struct gl_wish {
  enum gl_bound bound;
  unsigned bits;
};

// "auto", "auto:2^-10", "auto:rel=6". False: it is none of these.
bool gl_parse_auto(const char* name, struct gl_wish* wish);
// Whether it is meant to be one; gl_check_auto() then refuses what is written otherwise.
bool gl_begins_auto(const char* name);
gradlane_code gl_check_auto(gradlane_context* gl, const char* name);
