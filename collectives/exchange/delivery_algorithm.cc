// delivery_algorithm.cc - blocks that go from one rank to one other: gather, scatter, all-to-all (packet path)
#include "collectives/exchange/delivery_algorithm.h"

#include <algorithm>

#include "collectives/exchange/egress.h"
#include "collectives/exchange/peers.h"
#include "collectives/exchange/running.h"

namespace gradlane {

DeliveryAlgorithm::DeliveryAlgorithm(Running& it, const EngineParts& parts)
    : Algorithm(it, parts), sender_(parts.config.world), due_(parts.config.world) {}

void DeliveryAlgorithm::begin() noexcept {
  sender_.begin(it_);
  for (unsigned block = 0; block < it_.blocks.blocks(); ++block) {
    const bool stays = it_.task.kind == OpKind::kAllToAll && block == parts_.config.rank;
    const size_t count = stays || it_.strategy->start(it_.task, block).send ? it_.blocks.count(block) : 0;
    sender_.add(block, count, count);
  }
  const LinkSet sources = it_.strategy->sources(it_.task);
  std::ranges::fill(due_, 0);
  results_left_ = 0;
  for (size_t link = sources._Find_first(); link < parts_.topology.links(); link = sources._Find_next(link)) {
    due_[parts_.egress.peer(link)] = it_.blocks.count(0);  // all are as long
    results_left_ += it_.blocks.count(0);
  }
  it_.news.start |= sources;
}

bool DeliveryAlgorithm::accepts(const Run& run, size_t link, std::span<const Run> before) const noexcept {
  size_t left = due_[parts_.egress.peer(link)];
  for (const Run& other : before) {
    if (other.operation == &it_ && other.header.phase == run.header.phase) left -= other.header.count;
  }
  return run.header.count <= left;
}

void DeliveryAlgorithm::on_run(const Run& run, size_t link, bool, Nanos) noexcept {
  const unsigned from = parts_.egress.peer(link);
  const size_t first = run.header.first * it_.coder.granule();
  uint8_t* to = it_.elements(run.header.block, first);
  if (it_.task.kind == OpKind::kAllToAll) {
    to = static_cast<uint8_t*>(it_.operation.out) + (it_.blocks.offset(from) + first) * it_.coder.element_bytes();
  }
  (void)it_.back.decode(run.payload, to, run.header.count);
  due_[from] -= run.header.count;
  results_left_ -= run.header.count;
  parts_.counters.add(Counter::kRunsStored);
}

bool DeliveryAlgorithm::send_own(Nanos now) noexcept {
  const unsigned receivers = it_.blocks.blocks() == 1 ? 1 : parts_.config.world;
  sender_.send(it_, parts_.config.rank, receivers, parts_.budget, [&](unsigned block, size_t first, size_t count) {
    const Step step = it_.strategy->start(it_.task, block);
    if (!step.send) return copy_share(block, first);
    const Egress::Source source{.block = block,
                                .first = first,
                                .data = it_.elements(block, first),
                                .count = count,
                                .contribution = it_.contributes(),
                                .apart = first % sender_.window() == 0};
    const size_t sent = parts_.egress.send(it_, step, source, now);
    if (sent == 0) parts_.egress.note_unsent(step.link);
    return sent;
  });
  return false;
}

// Of an all-to-all, what stays here: as much as a poll has left for it.
size_t DeliveryAlgorithm::copy_share(unsigned block, size_t first) noexcept {
  if (parts_.budget.spent()) return 0;
  const size_t count = std::min(it_.blocks.count(block) - first, parts_.budget.elements());
  it_.copy_share(block, first, count);
  parts_.budget.spend(count);
  return count;
}

// The nearest rank that has not started it or from which something is still to come.
unsigned DeliveryAlgorithm::awaited() const noexcept {
  for (size_t link = 0; link < parts_.topology.links(); ++link) {
    const unsigned peer = parts_.egress.peer(link);
    const unsigned block = it_.task.kind == OpKind::kGather ? parts_.config.rank : peer;
    const Step step = it_.strategy->start(it_.task, block);
    const bool unsent = step.send && step.link == link && !sender_.has_sent(block);
    if (due_[peer] != 0 || (unsent && !parts_.peers.started(link, it_))) return peer;
  }
  return parts_.egress.peer(0);
}

}  // namespace gradlane
