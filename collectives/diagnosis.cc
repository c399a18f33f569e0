// diagnosis.cc - why a neighbour was given up (worker thread, seldom)
#include "collectives/diagnosis.h"

namespace gradlane {

Failure diagnose(const LinkFacts& facts) noexcept {
  const auto self = static_cast<uint16_t>(facts.self);
  const auto peer = static_cast<uint16_t>(facts.peer);
  Failure failure{.code = FailureCode::kSilent, .rank = peer};
  if (!facts.heard) {
    if (!facts.arrived_tos) return failure;
    failure.field = Field::kArrivedTos;
    failure.ours = pack({.from = peer, .to = self});
    failure.theirs = *facts.arrived_tos;
    return failure;
  }
  const PacketPath way{.from = self, .to = peer, .bytes = static_cast<uint32_t>(facts.blocked_bytes)};
  failure.ours = pack(way);
  if (facts.complained_tos) {
    failure.field = Field::kArrivedTos;
    failure.theirs = *facts.complained_tos;
  } else if (facts.path_bytes != 0 && facts.path_bytes < facts.blocked_bytes) {
    failure.field = Field::kPathMtu;
    failure.theirs = facts.path_bytes;
  } else if (facts.blocked_bytes > kAnyLinkBytes && facts.acked_bytes < facts.blocked_bytes) {
    failure.field = Field::kPacketSize;
    failure.theirs = facts.acked_bytes;
  } else {
    failure.field = Field::kNoAnswer;
  }
  return failure;
}

}  // namespace gradlane
