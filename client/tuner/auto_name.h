// auto_name.h - the name of the codec `auto`, which is chosen within a bound (pure)
#pragma once

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

// The bound on the error of a codec: the difference between an element as a rank contributed it and as decoded.
enum gl_bound {
  GL_BOUND_EXACT = 0,
  GL_BOUND_ABSOLUTE = 1,  // at most 2^-bits,
  GL_BOUND_RELATIVE = 2   // or 2^-bits of the largest value of any rank
};

// The meaning of a name such as "auto", "auto:2^-10" or "auto:rel=6".
struct gl_auto {
  enum gl_bound bound;
  unsigned bits;  // 0: exact
};

#define GL_AUTO_USAGE "auto (exact), auto:2^-B or auto:rel=B, B 1 to 30"

// Parses a name of `auto`. Returns false if the name is not a valid one.
bool gl_parse_auto(const char* name, struct gl_auto* it);
// Returns whether the name begins like a name of `auto`, even if the rest is wrong. The name may be NULL.
bool gl_begins_auto(const char* name);

#ifdef __cplusplus
}
#endif
