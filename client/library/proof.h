// proof.h - sums that prove a sum: of numbers on a lattice, and of their places (any thread; no context)
//
// A contribution to a sum by `fixed:B` is a whole number of steps for each element, which ranks add without rounding.
// So two sums of a whole block are linear in the contributions: those of the numbers, and of number times place, modulo
// 2^64. The sums of the result are the sums of the contributions' sums. If one or two elements are wrong by less than
// 2^24 steps each, the sums always differ. If more are wrong at random, they are equal with probability 2^-64.
#pragma once

#include <stddef.h>
#include <stdint.h>

// The sums of a block of at most 2^32 elements.
struct gl_proof {
  uint64_t sum;
  uint64_t places;  // sum of number times place in the block
  // For contributions: 1 if a number is so large that sums over all ranks may round, or not finite; else 0. For
  // results: 1 if one cannot be a sum of such contributions.
  uint64_t unfit;
};

struct gl_lattice {
  float steps_per_one;  // 2^(B-1)
  uint32_t ranks;
  uint32_t divisor;  // ranks for averages, else 1
};

// Returns the proof of a block of this rank's contribution, to which `residual` is added if it is not NULL.
struct gl_proof gl_prove_contribution(const struct gl_lattice* lattice, const float* data, const float* residual,
                                      size_t count);
// Returns the proof of a block of the result.
struct gl_proof gl_prove_result(const struct gl_lattice* lattice, const float* data, size_t count);
