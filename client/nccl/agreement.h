// agreement.h - what the nodes of a communicator tell each other before its first all-reduce (no thread)
#pragma once

#include <cstddef>
#include <cstdint>

#include "client/nccl/api.h"

namespace gradlane::nccl {

constexpr uint32_t kOfferMagic = 0x676C6331;  // "glc1"; another layout of Offer has another

// The handle of CollNet: listen() fills it in on each node, and connect() has those of all nodes. So all nodes come to
// the same decision.
struct Offer {
  uint32_t magic;
  int32_t rank;    // of this node in the ring of its daemon
  int32_t world;   // number of ranks of that ring; 0: this node has no daemon that can be used
  uint32_t spare;  // 0
  uint64_t nonce;  // random
  // The codec. If `world` is 0: why, or as much of that as fits.
  char text[104];
};
static_assert(sizeof(Offer) == kHandleBytes);

struct Verdict {
  char refusal[256];  // why the nodes cannot sum by their daemons; "": they can
  uint64_t tag;       // the same on these nodes only
};

// Decides whether the nodes with these offers can form a communicator. There are as many offers as `ranks`.
Verdict decide(const void* const* offers, int ranks);

}  // namespace gradlane::nccl
