// tuner.h - the tuner part of the plug-in: which all-reduces go through CollNet (NCCL's threads)
#pragma once

#include "client/nccl/api.h"

namespace gradlane::nccl {

// Smaller all-reduces stay with NCCL's own algorithms, unless CollNet is the only one that NCCL offers. CollNet sends
// whole chunks of 32 KiB or more, so the daemon could not see that a tensor is below 1024 elements, for which sums have
// no loss.
constexpr size_t kLeastCollNetBytes = 4096;

// Changes the costs of an all-reduce. NCCL takes the algorithm with the least. It has marked those that cannot be used,
// CollNet among them if its connect() has failed.
Result get_coll_info(void* context, int function, size_t bytes, int operations, float** table, int algorithms,
                     int protocols, int is_registered, int* channels);

}  // namespace gradlane::nccl
