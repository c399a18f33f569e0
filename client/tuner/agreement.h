// agreement.h - agreements of ranks on choices: tags of the all-reduces that compare their numbers, and digests of what
// must be alike (pure)
//
// The library runs these all-reduces before operations of its caller. Their tags are values that nobody else is likely
// to use. A tag mixes a number below 2^GL_AGREEMENT_BITS in an invertible way (splitmix64, by Steele, Lea and Flood).
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { GL_AGREEMENT_BITS = 40 };

#define GL_AGREEMENT_START UINT64_C(0x6175746f63686f69)
#define GL_AGREEMENT_STEP UINT64_C(0x9e3779b97f4a7c15)
#define GL_AGREEMENT_MIX UINT64_C(0xbf58476d1ce4e5b9)

static inline uint64_t gl_agreement_tag(uint64_t number) {
  uint64_t z = GL_AGREEMENT_START + number * GL_AGREEMENT_STEP;
  z = (z ^ z >> 30) * GL_AGREEMENT_MIX;
  return z ^ z >> 27;
}

// Returns the inverse of an odd number modulo 2^64. Each iteration doubles the number of correct bits, of which there
// are three at first.
static inline uint64_t gl_inverse(uint64_t odd) {
  uint64_t result = odd;
  for (int i = 0; i < 5; ++i) result *= 2 - odd * result;
  return result;
}

static inline bool gl_is_agreement_tag(uint64_t tag) {
  uint64_t z = tag ^ tag >> 27 ^ tag >> 54;
  z *= gl_inverse(GL_AGREEMENT_MIX);
  z = z ^ z >> 30 ^ z >> 60;
  return (z - GL_AGREEMENT_START) * gl_inverse(GL_AGREEMENT_STEP) >> GL_AGREEMENT_BITS == 0;
}

#define GL_DIGEST UINT64_C(0xcbf29ce484222325)

#ifdef __cplusplus
extern "C" {
#endif
// Returns the FNV-1a digest that follows from `digest` and these bytes. The first digest is GL_DIGEST.
uint64_t gl_digest(uint64_t digest, const void* bytes, size_t count);
#ifdef __cplusplus
}
#endif
