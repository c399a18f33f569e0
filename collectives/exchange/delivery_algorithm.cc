// delivery_algorithm.cc - blocks that go from one rank to one other: gather, scatter, all-to-all (packet path)
#include "collectives/exchange/delivery_algorithm.h"

#include <algorithm>

#include "collectives/exchange/egress.h"
#include "collectives/exchange/operation_state.h"
#include "collectives/exchange/peers.h"

namespace gradlane {

DeliveryAlgorithm::DeliveryAlgorithm(OperationState& it, const EngineParts& parts)
    : Algorithm(it, parts), sender_(parts.owners), due_(parts.owners) {}

void DeliveryAlgorithm::begin() noexcept {
  sender_.begin(it_);
  for (unsigned block = 0; block < it_.blocks.blocks(); ++block) {
    const bool stays = it_.route.kind == OpKind::kAllToAll && block == parts_.config.rank;
    const size_t count = stays || it_.strategy->start(it_.route, block).send ? it_.blocks.count(block) : 0;
    sender_.add(block, count, count);
  }
  const LinkSet sources = it_.strategy->sources(it_.route);
  std::ranges::fill(due_, 0);
  results_left_ = 0;
  for (size_t link = sources._Find_first(); link < parts_.topology.links(); link = sources._Find_next(link)) {
    due_[parts_.topology.rank_at(link)] = it_.blocks.count(0);  // all blocks have the same length
    results_left_ += it_.blocks.count(0);
  }
  it_.notices.start |= sources;
}

bool DeliveryAlgorithm::accepts(const Run& run, size_t link, std::span<const Run> before) const noexcept {
  return fits(run, before, due_[parts_.topology.rank_at(link)]);
}

void DeliveryAlgorithm::on_run(const Run& run, size_t link, bool, Nanos) noexcept {
  const unsigned from = parts_.topology.rank_at(link);
  const size_t first = run.header.first * it_.coder.granule();
  uint8_t* to = it_.elements(run.header.block, first);
  if (it_.route.kind == OpKind::kAllToAll) {
    to = static_cast<uint8_t*>(it_.operation.out) + (it_.blocks.offset(from) + first) * it_.coder.element_bytes();
  }
  (void)it_.result_coder.decode(run.payload, to, run.header.count);
  due_[from] -= run.header.count;
  results_left_ -= run.header.count;
  parts_.counters.add(Counter::kRunsStored);
}

bool DeliveryAlgorithm::send_own(Nanos now) noexcept {
  const unsigned receivers = it_.blocks.blocks() == 1 ? 1 : parts_.config.world;
  sender_.send(it_, parts_, receivers, now);
  return false;
}

// Returns the first neighbour from which elements are still to arrive, or which has not started and must still receive
// some.
unsigned DeliveryAlgorithm::awaited() const noexcept {
  for (size_t link = 0; link < parts_.topology.links(); ++link) {
    const unsigned peer = parts_.topology.rank_at(link);
    const unsigned block = it_.route.kind == OpKind::kGather ? parts_.config.rank : peer;
    const Step step = it_.strategy->start(it_.route, block);
    const bool unsent = step.send && step.link == link && !sender_.has_sent(block);
    if (due_[peer] != 0 || (unsent && !parts_.peers.started(link, it_))) return peer;
  }
  return parts_.topology.rank_at(0);
}

}  // namespace gradlane
