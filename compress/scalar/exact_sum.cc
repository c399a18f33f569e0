// exact_sum.cc - correctly rounded sums, for all CPUs (any thread)
#include "compress/kit/exact_sums.h"

namespace gradlane::scalar {

void exact_sum(const ExactSumJob<float>& job) noexcept { ExactSums<float>::run(job); }
void exact_sum(const ExactSumJob<double>& job) noexcept { ExactSums<double>::run(job); }

}  // namespace gradlane::scalar
