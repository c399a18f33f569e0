// exact_sum.cc - correctly rounded sums, in AVX2 (any thread)
#include "compress/kit/exact_sums.h"

namespace gradlane::avx2 {

void exact_sum(const ExactSumJob<float>& job) noexcept { ExactSums<float>::run(job); }
void exact_sum(const ExactSumJob<double>& job) noexcept { ExactSums<double>::run(job); }

}  // namespace gradlane::avx2
