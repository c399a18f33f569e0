// checksum.h - checksums of a block of a sum, whose sums over the ranks are those of the result (any thread; no
// context)
//
// A contribution to a sum by `fixed:B` is a whole number of steps for each element, which ranks add without rounding.
// So two checksums of a block are linear in the contributions: the sum of the numbers, and of number times place,
// modulo 2^64 (Huang and Abraham, IEEE Transactions on Computers 33(6), 1984). If one or two elements of the result are
// wrong by less than 2^24 steps each, a checksum differs. More errors may cancel out, such as +1, -2, +1 in a row.
#pragma once

#include <stddef.h>
#include <stdint.h>

// The checksums of a block of at most 2^32 elements.
struct gl_checksum {
  uint64_t sum;
  uint64_t places;  // sum of number times place in the block
  // For contributions: 1 if a number is not finite, or above 2^22 / ranks; in their sum, the number of such ranks. For
  // results: 1 if a number cannot be a sum of such contributions.
  uint64_t unfit;
};

struct gl_lattice {
  float steps_per_one;  // 2^(B-1)
  uint32_t ranks;
  uint32_t divisor;  // ranks for averages, else 1
};

// Returns the checksums of a block of this rank's contribution, to which `residual` is added if it is not NULL.
struct gl_checksum gl_checksum_of_contribution(const struct gl_lattice* lattice, const float* data,
                                               const float* residual, size_t count);
// Returns the checksums of a block of the result.
struct gl_checksum gl_checksum_of_result(const struct gl_lattice* lattice, const float* data, size_t count);
