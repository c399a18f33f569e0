// operation_table.h - the operations of an exchange, from submission to the read completion (lane's thread)
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collectives/exchange/operation_state.h"
#include "collectives/exchange_config.h"
#include "collectives/operation.h"

namespace gradlane {

// Operations have ids, which count from 0, and numbers on the wire, which count from 0 in each generation of the ring.
// They start in the order of ids and numbers, and end in any order.
class OperationTable {
 public:
  // Allocates all memory. `parts` must outlive this object.
  explicit OperationTable(const EngineParts& parts);
  OperationTable(const OperationTable&) = delete;
  OperationTable& operator=(const OperationTable&) = delete;

  [[nodiscard]] std::span<OperationState> all() noexcept { return table_; }
  [[nodiscard]] std::span<const OperationState> all() const noexcept { return table_; }

  // Returns the operation with this number, which must have started; null if it is over.
  [[nodiscard]] OperationState* running(uint32_t number) noexcept {
    const uint32_t back = static_cast<uint32_t>(started_) - number;
    OperationState& it = of(base_ + started_ - back);
    return it.state == OperationState::State::kRunning && it.number == number ? &it : nullptr;
  }
  [[nodiscard]] bool has_started(uint32_t number) const noexcept {
    return static_cast<int32_t>(static_cast<uint32_t>(started_) - number) > 0;
  }
  // Returns how far a number is ahead of the next one to start. The result is negative if the number has started.
  [[nodiscard]] int32_t ahead(uint32_t number) const noexcept {
    return static_cast<int32_t>(number - static_cast<uint32_t>(started_));
  }

  // Visits the running operations in the order in which they were submitted.
  template <typename Visit>
  void for_running(Visit visit) noexcept {
    // No operation with an id before `first` runs: their completions have been read, or they are of an earlier
    // generation.
    const uint64_t first = std::max(read_, base_ + started_ - std::min<uint64_t>(started_, table_.size()));
    const uint64_t end = base_ + started_;
    for (uint64_t id = first; id < end; ++id) {
      OperationState& it = of(id);
      if (it.id == id && it.state == OperationState::State::kRunning) visit(it);
    }
  }

  // ---- Submissions
  // Returns the next slot of the table. Returns null if the operation in it is not over, has an unread completion, or
  // has an unsent notice.
  [[nodiscard]] OperationState* next_free_slot() noexcept;
  // Returns memory for a tensor of `bytes`, which includes all that this rank adds up for others. Returns null if none
  // is free. `place`: the slot of the operation.
  [[nodiscard]] OperationMemory* memory_for(size_t bytes, const OperationState& place) noexcept;
  // Gives the slot `it` and the memory to a new operation, which waits until it is started.
  void claim(OperationState& it, OperationMemory& memory) noexcept;
  // Returns the operation with this id. Returns null if its slot now belongs to a later operation, or if it was never
  // submitted.
  [[nodiscard]] OperationState* find(uint64_t id) noexcept;

  // Returns whether no operation was submitted in this generation.
  [[nodiscard]] bool none_submitted() const noexcept { return base_ == submitted_; }
  [[nodiscard]] bool any_started() const noexcept { return started_ != 0; }
  [[nodiscard]] bool any_waiting() const noexcept { return base_ + started_ != submitted_; }
  // Returns the number that the next submitted operation will have.
  [[nodiscard]] uint32_t next_number() const noexcept { return static_cast<uint32_t>(submitted_ - base_); }
  // Starts the oldest operation that waits. Call it only if one waits.
  [[nodiscard]] OperationState& start_next() noexcept { return of(base_ + started_++); }
  // Restarts the numbers: the next submitted operation has number 0. No operation may wait or run.
  void restart_numbers() noexcept {
    base_ = submitted_;
    started_ = 0;
  }

  // ---- Ends
  void finish(OperationState& it) noexcept;
  [[nodiscard]] bool any_active() const noexcept { return active_ != 0; }  // whether any operation waits or runs
  [[nodiscard]] bool next_completion(Completion& completion) noexcept;
  // Frees the slot and the memory, if the completion has been read and all notices to neighbours have been sent.
  static void release_if_read(OperationState& it) noexcept;

 private:
  [[nodiscard]] OperationState& of(uint64_t id) noexcept { return table_[id % table_.size()]; }

  // One memory for a small tensor for each slot of the table, and after these the memories for large tensors.
  std::vector<OperationMemory> memories_;
  std::vector<OperationState> table_;
  size_t active_ = 0;
  size_t unread_ = 0;       // operations that are over and have an unread completion
  uint64_t submitted_ = 0;  // number of submissions, which is the next id
  uint64_t read_ = 0;       // completions of all ids before this one have been read
  uint64_t base_ = 0;       // id of the operation with number 0
  uint64_t started_ = 0;    // numbers before this one have started
};

}  // namespace gradlane
