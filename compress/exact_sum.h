// exact_sum.h - correctly rounded sums and averages of several arrays
//
// Like kernels.h, this file has plain data and declarations, and no function with a body.
#pragma once

#include <cstddef>

#include "compress/isa.h"

namespace gradlane {

// The arrays to add, two or more, of float or double. They may lie at any address. `out` may be one of them.
template <class T>
struct ExactSumJob {
  const void* const* in;
  unsigned arrays;
  unsigned divisor;  // 1, or the number of ranks, to make averages
  void* out;
  size_t count;  // elements of each array
  // For sums that are then rounded to fewer bits, float only: round to odd instead of nearest even. A second rounding,
  // to bfloat16 or float16, then gives what one rounding would (Boldo and Melquiond, IEEE Transactions on Computers
  // 57(4), 2008).
  bool to_odd = false;
};

// Writes the true sum, or the true quotient of the sum and the divisor, rounded once to nearest even. So the bits do
// not depend on the order of the arrays.
//
// The rules are those of IEEE 754: a sum that rounds past the largest number is Inf. If all elements are -0, so is the
// sum; any other zero is +0, but quotients too small for a denormal keep their sign. Infinities of both signs, or a
// NaN, give the NaN of all sums.
void exact_sum(Isa isa, const ExactSumJob<float>& job) noexcept;
void exact_sum(Isa isa, const ExactSumJob<double>& job) noexcept;

// Returns the sum or quotient of element `at` of all arrays. It adds whole numbers of 2240 bits. Kernels call
// it for the tail of the arrays, and where two doubles do not suffice.
template <class T>
[[nodiscard]] T exact_sum_of_one(const ExactSumJob<T>& job, size_t at) noexcept;

#define GRADLANE_EXACT_SUMS                               \
  void exact_sum(const ExactSumJob<float>& job) noexcept; \
  void exact_sum(const ExactSumJob<double>& job) noexcept;

namespace scalar {
GRADLANE_EXACT_SUMS
}
namespace avx2 {
GRADLANE_EXACT_SUMS
}
namespace avx512 {
GRADLANE_EXACT_SUMS
}
namespace neon {
GRADLANE_EXACT_SUMS
}
#undef GRADLANE_EXACT_SUMS

}  // namespace gradlane
