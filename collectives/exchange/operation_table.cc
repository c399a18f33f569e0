// operation_table.cc - the operations of an exchange, from submission to the read completion (lane's thread)
#include "collectives/exchange/operation_table.h"

#include "collectives/exchange/algorithm.h"
#include "collectives/wire.h"

namespace gradlane {
namespace {

// number of slots in the table for each memory for a large tensor, so that more small tensors can be in flight
constexpr size_t kSlotsPerMemory = 4;

}  // namespace

OperationTable::OperationTable(const EngineParts& parts) {
  const ExchangeConfig& config = parts.config;
  // Each rank's block may end within a granule.
  const size_t granules = config.max_bytes / kGranuleBytes + 2 * size_t{config.world};
  const size_t small = OrderedReducer::kSmallBytes / kGranuleBytes + 2 * size_t{config.world};
  // Two ranks pass no results on.
  const auto relayed = [&](size_t all) { return config.world > 2 ? all : 0; };
  const size_t slots = std::min(kMaxOperations, config.operations * kSlotsPerMemory);
  memories_.reserve(slots + config.operations);
  table_.reserve(slots);
  for (size_t i = 0; i < slots; ++i) {
    memories_.emplace_back(small, relayed(small), parts.owners, true);
    OperationState& it = table_.emplace_back(i, config.codec, &memories_.back());
    it.algorithms = make_algorithms(it, parts);  // the algorithms refer to `it`, so it must not move from now on
  }
  for (size_t i = 0; i < config.operations; ++i)
    memories_.emplace_back(granules, relayed(granules), parts.owners, false);
}

OperationState* OperationTable::next_free_slot() noexcept {
  OperationState& it = of(submitted_);
  return it.state == OperationState::State::kFree ? &it : nullptr;
}

// Each slot has its own memory for a small tensor, so more small operations than large ones can be in flight.
OperationMemory* OperationTable::memory_for(size_t bytes, const OperationState& place) noexcept {
  if (bytes <= OrderedReducer::kSmallBytes) return &memories_[place.place];
  const auto memory = std::find_if(memories_.begin() + static_cast<ptrdiff_t>(table_.size()), memories_.end(),
                                   [](const OperationMemory& each) { return !each.taken; });
  return memory != memories_.end() ? &*memory : nullptr;
}

void OperationTable::claim(OperationState& it, OperationMemory& memory) noexcept {
  memory.taken = true;
  it.memory = &memory;
  it.state = OperationState::State::kWaiting;
  it.unread = true;
  it.id = submitted_++;
  it.number = static_cast<uint32_t>(it.id - base_);
  ++active_;
}

OperationState* OperationTable::find(uint64_t id) noexcept {
  OperationState& it = of(id);
  return id < submitted_ && it.id == id ? &it : nullptr;
}

void OperationTable::finish(OperationState& it) noexcept {
  it.state = OperationState::State::kOver;
  --active_;
  ++unread_;
}

bool OperationTable::next_completion(Completion& completion) noexcept {
  if (unread_ == 0) return false;
  // Operations complete independently, so any of them may be next.
  for (uint64_t id = read_; id != submitted_; ++id) {
    OperationState& it = of(id);
    if (it.id != id || !it.unread || it.state != OperationState::State::kOver) continue;
    completion = {.id = id,
                  .failure = it.outcome.failure,
                  .residual_cleared = it.outcome.residual_cleared,
                  .loss = it.outcome.loss,
                  .sent_bytes = it.outcome.sent_bytes,
                  .runs = it.outcome.runs,
                  .run_bytes = it.outcome.run_bytes};
    it.unread = false;
    --unread_;
    release_if_read(it);
    while (read_ != submitted_ && !of(read_).unread) ++read_;
    return true;
  }
  return false;
}

void OperationTable::release_if_read(OperationState& it) noexcept {
  if (it.state != OperationState::State::kOver || !it.notices.none() || it.unread) return;
  it.state = OperationState::State::kFree;
  it.memory->taken = false;
}

}  // namespace gradlane
