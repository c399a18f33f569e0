// tuner.cc - the tuner part of the plug-in: which all-reduces go through CollNet (NCCL's threads)
#include "client/nccl/tuner.h"

namespace gradlane::nccl {
namespace {

bool is_collnet(int algorithm) { return algorithm == kCollNetDirect || algorithm == kCollNetChain; }

}  // namespace

Result get_coll_info(void* /*context*/, int function, size_t bytes, int /*operations*/, float** table, int algorithms,
                     int protocols, int /*is_registered*/, int* /*channels*/) {
  if (function != kAllReduce || algorithms <= kCollNetChain || protocols <= kSimple) return kSuccess;
  auto* const costs = reinterpret_cast<float*>(table);
  const auto cost = [costs, protocols](int algorithm, int protocol) -> float& {
    return costs[algorithm * protocols + protocol];
  };
  if (cost(kCollNetChain, kSimple) < 0) return kSuccess;
  bool has_others = false;
  for (int algorithm = 0; algorithm < algorithms; ++algorithm) {
    for (int protocol = 0; protocol < protocols; ++protocol) {
      has_others = has_others || (!is_collnet(algorithm) && cost(algorithm, protocol) >= 0);
    }
  }
  if (bytes >= kLeastCollNetBytes) {
    cost(kCollNetChain, kSimple) = 0;
  } else if (has_others) {
    cost(kCollNetChain, kSimple) = kIgnore;
    cost(kCollNetDirect, kSimple) = kIgnore;
  }
  return kSuccess;
}

}  // namespace gradlane::nccl
