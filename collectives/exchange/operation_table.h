// operation_table.h - the operations of an exchange, from submission to the read completion (lane's thread)
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collectives/exchange/running.h"
#include "collectives/exchange_config.h"
#include "collectives/operation.h"

namespace gradlane {

// Operations have ids, which count from 0, and numbers on the wire, which count from 0 in each generation of the ring.
// They start in the order of ids and numbers, and end in any order.
class OperationTable {
 public:
  // Allocates all memory. `parts` outlives this.
  explicit OperationTable(const EngineParts& parts);
  OperationTable(const OperationTable&) = delete;
  OperationTable& operator=(const OperationTable&) = delete;

  [[nodiscard]] std::span<Running> all() noexcept { return table_; }
  [[nodiscard]] std::span<const Running> all() const noexcept { return table_; }

  // Of a number that has started: the operation, or null if it is over.
  [[nodiscard]] Running* running(uint32_t number) noexcept {
    const uint32_t back = static_cast<uint32_t>(started_) - number;
    Running& it = of(base_ + started_ - back);
    return it.state == Running::State::kRunning && it.number == number ? &it : nullptr;
  }
  [[nodiscard]] bool has_started(uint32_t number) const noexcept {
    return static_cast<int32_t>(static_cast<uint32_t>(started_) - number) > 0;
  }
  // How far a number is ahead of the next one to start. Less than 0: it has started.
  [[nodiscard]] int32_t ahead(uint32_t number) const noexcept {
    return static_cast<int32_t>(number - static_cast<uint32_t>(started_));
  }

  // Visits those that run, in the order in which they were submitted.
  template <typename Visit>
  void for_running(Visit visit) noexcept {
    // None that was submitted before this one runs: what runs is unread.
    const uint64_t first = std::max(read_, base_ + started_ - std::min<uint64_t>(started_, table_.size()));
    const uint64_t end = base_ + started_;
    for (uint64_t id = first; id < end; ++id) {
      Running& it = of(id);
      if (it.id == id && it.state == Running::State::kRunning) visit(it);
    }
  }

  // ---- Submissions
  // Returns the next place, or null: the completion of its last operation is unread, or a notice of it is unsent.
  [[nodiscard]] Running* next_place() noexcept;
  // Returns a room for a tensor of `bytes`, which includes all that this rank adds up for others; null if none is free.
  [[nodiscard]] Room* room_for(size_t bytes, const Running& place) noexcept;
  // The place is taken by an operation that waits.
  void take(Running& it, Room& room) noexcept;
  // null: this id is over, and its place another's, or it was never there.
  [[nodiscard]] Running* find(uint64_t id) noexcept;

  // No operation was submitted in this generation.
  [[nodiscard]] bool fresh() const noexcept { return base_ == submitted_; }
  [[nodiscard]] bool any_started() const noexcept { return started_ != 0; }
  [[nodiscard]] bool any_waiting() const noexcept { return base_ + started_ != submitted_; }
  // The number that the next one to be submitted will have.
  [[nodiscard]] uint32_t next_number() const noexcept { return static_cast<uint32_t>(submitted_ - base_); }
  // Starts the oldest operation that waits. Call it only if one waits.
  [[nodiscard]] Running& start_next() noexcept { return of(base_ + started_++); }
  // The next one that is submitted has number 0. What waits or runs must be over.
  void restart_numbers() noexcept {
    base_ = submitted_;
    started_ = 0;
  }

  // ---- Ends
  void end(Running& it) noexcept;
  [[nodiscard]] bool any_active() const noexcept { return active_ != 0; }  // that wait or run
  [[nodiscard]] bool next_completion(Completion& completion) noexcept;
  // Frees the place once the completion has been read and all notices to neighbours have been sent.
  static void release_if_read(Running& it) noexcept;

 private:
  [[nodiscard]] Running& of(uint64_t id) noexcept { return table_[id % table_.size()]; }

  // First one room for small tensors for each place of the table, then the rooms for large tensors.
  std::vector<Room> rooms_;
  std::vector<Running> table_;
  size_t active_ = 0;
  size_t unread_ = 0;       // that are over, and their completions have not been read
  uint64_t submitted_ = 0;  // ids from 0
  uint64_t read_ = 0;       // completions are given in the order of ids where they are there
  uint64_t base_ = 0;       // id of the operation with number 0
  uint64_t started_ = 0;    // numbers before this one have started
};

}  // namespace gradlane
