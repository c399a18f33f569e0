// auto_name.h - the codec `auto`, which is to be chosen within a bound: how it is written (pure)
#pragma once

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

// How far the value of an element may be from the one that a rank contributed.
enum gl_bound {
  GL_BOUND_EXACT = 0,
  GL_BOUND_ABSOLUTE = 1,  // at most 2^-bits,
  GL_BOUND_RELATIVE = 2   //   or 2^-bits of the contribution's largest value
};

// What "auto", "auto:2^-10" and "auto:rel=6" stand for.
struct gl_auto {
  enum gl_bound bound;
  unsigned bits;  // 0: exact
};

#define GL_AUTO_USAGE "auto (exact), auto:2^-B or auto:rel=B, B 1 to 30"

// Returns whether the name is one of these.
bool gl_parse_auto(const char* name, struct gl_auto* it);
// Returns whether the name, which may be NULL, is meant to be one.
bool gl_begins_auto(const char* name);

#ifdef __cplusplus
}
#endif
