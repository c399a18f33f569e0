// delivered.cc - operations whose blocks go from one rank to one other: gather, scatter, all-to-all (packet path)
#include <algorithm>
#include <cstring>

#include "collectives/exchange/exchange_state.h"

namespace gradlane {

// Nobody has to say how much he can take: what comes goes right where it belongs. Who will receive says that he has
// started, which is all that a sender waits for.
void ExchangeState::begin_delivery(Running& it) noexcept {
  const unsigned blocks = it.blocks.blocks();
  it.own_block = blocks;  // nothing goes round,
  it.own = blocks;        //   and nothing is added
  it.next_owner = 1;
  for (unsigned block = 0; block < blocks; ++block) {
    const size_t count = it.blocks.count(block);
    const bool copied = it.task.kind == OpKind::kAllToAll && block == config_.rank;
    const bool mine = copied || it.strategy->start(it.task, block).send;
    it.sent[block] = 0;
    it.limit[block] = mine ? count : 0;
    it.to_send += it.limit[block];
  }
  const LinkSet sources = it.strategy->sources(it.task);
  std::ranges::fill(it.due, 0);
  for (size_t link = sources._Find_first(); link < links_.size(); link = sources._Find_next(link)) {
    it.due[links_[link].peer()] = it.blocks.count(0);  // all are as long
    it.results_left += it.blocks.count(0);
  }
  it.announce |= sources;
}

void ExchangeState::take_delivery(const Run& run, size_t link) noexcept {
  Running& it = *run.operation;
  const unsigned from = links_[link].peer();
  const size_t first = run.header.first * it.coder.granule();
  uint8_t* to = elements(it, run.header.block, first);
  if (it.task.kind == OpKind::kAllToAll) {
    to = static_cast<uint8_t*>(it.operation.out) + (it.blocks.offset(from) + first) * it.coder.element_bytes();
  }
  (void)it.back.decode(run.payload, to, run.header.count);
  it.due[from] -= run.header.count;
  it.results_left -= run.header.count;
  counters_.add(Counter::kRunsStored);
}

// Of an all-to-all, what stays here; returns how many elements a poll had left for it.
size_t ExchangeState::copy_own(Running& it, unsigned block, size_t first) noexcept {
  const size_t count = std::min(it.blocks.count(block) - first, elements_left_);
  if (elements_left_ == 0) more_ = true;
  if (count == 0) return 0;
  const size_t at = (it.blocks.offset(block) + first) * it.coder.element_bytes();
  std::memcpy(static_cast<uint8_t*>(it.operation.out) + at, static_cast<const uint8_t*>(it.operation.data) + at,
              count * it.coder.element_bytes());
  elements_left_ -= count;
  return count;
}

// Whom it waits for: the nearest rank that has not started it or from which something is still to come.
unsigned ExchangeState::owed_delivery(const Running& it) const noexcept {
  for (size_t link = 0; link < links_.size(); ++link) {
    const unsigned peer = links_[link].peer();
    const unsigned block = it.task.kind == OpKind::kGather ? config_.rank : peer;
    const Step step = it.strategy->start(it.task, block);
    const bool unsent = step.send && step.link == link && it.sent[block] != it.limit[block];
    if (it.due[peer] != 0 || (unsent && !peer_started(link, it))) return peer;
  }
  return links_.front().peer();
}

}  // namespace gradlane
