// tuner.h - the tuner part of the plug-in: which all-reduces go through CollNet (NCCL's threads)
#pragma once

#include "client/nccl/api.h"

namespace gradlane::nccl {

// Smaller all-reduces stay with NCCL's own algorithms, unless CollNet is the only one that NCCL offers. CollNet sends
// whole chunks of 32 KiB or more. So shorter ones would send more bytes than they have, and the daemon could not see
// that a tensor is below 1024 elements, for which sums have no loss.
constexpr size_t kLeastCollNetBytes = size_t{32} << 10;

// Sets the costs of an all-reduce. NCCL takes the cheapest algorithm. Before the call it marks those that cannot be
// used: CollNet, if its connect() has failed.
Result get_coll_info(void* context, int function, size_t bytes, int operations, float** table, int algorithms,
                     int protocols, int is_registered, int* channels);

}  // namespace gradlane::nccl
