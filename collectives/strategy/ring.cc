// ring.cc - the routing rule of the ring (packet path)
#include "collectives/strategy/ring.h"

namespace gradlane {
namespace {

constexpr uint8_t kSuccessor = 0;

// A barrier is the sum of one element.
bool adds(OpKind kind) { return reduces(kind) || kind == OpKind::kBarrier; }

}  // namespace

Ring::Ring(unsigned world, unsigned rank) noexcept
    : world_(world),
      rank_(rank),
      count_(world == 1   ? 0
             : world == 2 ? 1
                          : 2) {
  neighbours_ = {after(rank), before(rank)};
}

unsigned Ring::blocks(const Operation& operation) const noexcept {
  return operation.kind == OpKind::kBroadcast ? 1 : world_;
}

// Stores a result that started at rank `from`, and passes it on to where it was not yet.
Step Ring::pass_result(unsigned from) const noexcept {
  Step step;
  step.expected = true;
  step.store = true;
  step.send = after(rank_) != from;
  step.link = kSuccessor;
  step.phase = Phase::kGather;
  step.begins = from == rank_;
  step.sink = static_cast<uint16_t>(before(from));
  return step;
}

Step Ring::start(const Operation& operation, unsigned block) const noexcept {
  if (operation.kind == OpKind::kBroadcast) return rank_ == operation.root ? pass_result(rank_) : Step{};
  if (operation.kind == OpKind::kAllGather) return block == rank_ ? pass_result(rank_) : Step{};
  if (rank_ != after(block)) return {};
  if (world_ == 1) return pass_result(rank_);
  Step step;
  step.expected = true;
  step.send = true;
  step.link = kSuccessor;
  step.phase = Phase::kReduce;
  return step;
}

Step Ring::arrival(const Operation& operation, Phase phase, unsigned block) const noexcept {
  if (phase == Phase::kGather) {
    if (operation.kind == OpKind::kReduceScatter) return {};
    const unsigned from = operation.kind == OpKind::kBroadcast ? operation.root : block;
    return from == rank_ ? Step{} : pass_result(from);
  }
  if (!adds(operation.kind) || rank_ == after(block)) return {};
  Step step;
  if (rank_ == block) {
    step = pass_result(rank_);
    step.send = operation.kind != OpKind::kReduceScatter;
  } else {
    step.expected = true;
    step.send = true;
    step.link = kSuccessor;
    step.phase = Phase::kReduce;
  }
  step.merge = true;
  return step;
}

Step Ring::failure(unsigned origin) const noexcept {
  Step step;
  step.send = world_ > 1 && after(rank_) != origin;
  step.link = kSuccessor;
  step.phase = Phase::kAbort;
  return step;
}

}  // namespace gradlane
