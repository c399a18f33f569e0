// auto_name.h - the name of the codec `auto`, which is chosen within a bound (pure)
#pragma once

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

// The bound on the difference between the value of an element and the one that a rank contributed.
enum gl_bound {
  GL_BOUND_EXACT = 0,
  GL_BOUND_ABSOLUTE = 1,  // at most 2^-bits,
  GL_BOUND_RELATIVE = 2   //   or 2^-bits of the contribution's largest value
};

// The meaning of a name such as "auto", "auto:2^-10" or "auto:rel=6".
struct gl_auto {
  enum gl_bound bound;
  unsigned bits;  // 0: exact
};

#define GL_AUTO_USAGE "auto (exact), auto:2^-B or auto:rel=B, B 1 to 30"

// Returns whether the name is one of these.
bool gl_parse_auto(const char* name, struct gl_auto* it);
// Returns whether the name is meant to be one of these, even if it is wrong. The name may be NULL.
bool gl_begins_auto(const char* name);

#ifdef __cplusplus
}
#endif
