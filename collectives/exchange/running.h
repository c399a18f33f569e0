// running.h - one operation on one rank, and the memory that grows with its tensor (lane's thread)
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/time.h"
#include "collectives/descriptor.h"
#include "collectives/exchange/algorithms.h"
#include "collectives/exchange/blocks.h"
#include "collectives/exchange/coder.h"
#include "collectives/exchange/deferred.h"
#include "collectives/exchange/turns.h"
#include "collectives/operation.h"
#include "collectives/strategy/strategy.h"
#include "collectives/wire.h"

namespace gradlane {

// The memory of an operation that grows with its tensor.
struct Room {
  // For tensors of so many granules; `relayed`: of which so many may be results of others that go on from here;
  // `owners`: ranks, where blocks may have owners; else 0.
  Room(size_t granules, size_t relayed, unsigned owners, bool small)
      : partial(granules),
        result(granules),
        digests(std::make_unique_for_overwrite<uint32_t[]>(relayed)),
        turns(owners, small) {}

  Deferred partial;  // partial sums in the tensor
  Deferred result;   // results in the tensor
  // CRC32C of granules of the tensor: of results that other ranks will get from there. Not initialized, so that pages
  // are taken only for results that do wait.
  std::unique_ptr<uint32_t[]> digests;
  Turns turns;  // contributions to the block that is this rank's
  bool taken = false;
};

// One operation, from submit() until its completion has been read and all ranks have been told what they must know.
// What moves its elements is its Algorithm.
struct Running {
  enum class State : uint8_t {
    kFree,
    kWaiting,  // for the ring, or for its turn
    kRunning,
    kOver,
  };

  struct Times {
    Nanos submitted = 0;
    Nanos deadline = 0;
    Nanos tell_all = kNever;  // then all neighbours that have not started it hear that this rank has
  };

  // Before its first element: Preparation.
  struct Prepared {
    bool ready = true;    // elements may move; until then neighbours send none, as no stage is announced
    bool counted = true;  // has been subtracted from Operation::lookers, or need not be
    unsigned lead = 0;    // 1: the codec scans the tensor first, and stages are announced by numbers from 1
    std::optional<float> local_offer;  // for the value that all ranks agree on
    LinkSet ready_notification;        // neighbours that must hear when it is ready
    std::unique_ptr<Look> look = std::make_unique<Look>();
  };

  // What neighbours must hear: Control.
  struct News {
    LinkSet start;       // links that must hear that it has started
    LinkSet failure;     // links that must hear that it has failed
    uint8_t origin = 0;  // the rank on which the failure began

    [[nodiscard]] bool none() const noexcept { return start.none() && failure.none(); }
  };

  struct Outcome {
    // Once it is over: how it failed. While it runs: the failure that its algorithm has found. While it waits: the
    // failure that it gets at its turn.
    Failure failure;
    bool residual_cleared = false;
    Loss loss;
    uint64_t sent_bytes = 0;  // Completion::sent_bytes so far
  };

  Running(size_t place_in_table, const Codec& codec, Room* small)
      : place(place_in_table), room(small), coder(ElementType::kFloat32, codec), back(coder) {}

  // ---- The tensor. Elements count from the first one of a block on.
  [[nodiscard]] uint8_t* elements(unsigned block, size_t element) const noexcept {
    return static_cast<uint8_t*>(operation.data) + (base + blocks.offset(block) + element) * coder.element_bytes();
  }
  // The position and residuals of elements: of this rank's contribution, or of a sum, which uses the second residual.
  [[nodiscard]] Origin origin(unsigned block, size_t element, bool contribution) const noexcept {
    return origin_at(static_cast<ptrdiff_t>(base + blocks.offset(block) + element), contribution);
  }
  [[nodiscard]] Origin origin_at(ptrdiff_t element_of_tensor, bool contribution) const noexcept;
  // Finishes results that have been sent or need not be: for an average, divides them.
  void complete(unsigned block, size_t element, size_t count) const noexcept {
    if (operation.reduction == Reduction::kAverage && last_stage())
      coder.divide(elements(block, element), count, world);
  }
  // Of an all-to-all, copies elements of a block that stay on this rank, as many as a poll may. Returns how many.
  size_t copy_share(unsigned block, size_t first, PollBudget& budget) const noexcept;

  // ---- The stage
  // Its sums are what this rank adds its contribution to.
  [[nodiscard]] bool contributes() const noexcept { return reduces(task.kind) && task.stage == 0; }
  // Whether the last addition of this stage completes the sum of all contributions.
  [[nodiscard]] bool sums_end() const noexcept {
    return reduces(task.kind) && task.stage == strategy->stages(task.kind) / 2;
  }
  [[nodiscard]] bool last_stage() const noexcept { return task.stage + 1 >= strategy->stages(operation.kind); }
  [[nodiscard]] RunHeader run_header(const Coder& by, Phase phase, unsigned block, size_t element) const noexcept;

  // ---- Codecs
  // Makes the coders from the operation's codecs as they are now.
  void make_coders() noexcept;
  // Records that this rank has scanned the tensor, or need not.
  void note_looked() noexcept;
  // Sets the residual to zero: the operation failed while sums were under way, so what it had is lost.
  void clear_residual() noexcept;

  const size_t place;  // in the table
  Room* room;          // while it is free: any
  AlgorithmSet algorithms;
  Algorithm* algorithm = nullptr;  // of these, from its start on
  State state = State::kFree;
  bool unread = false;  // its completion is
  uint64_t id = 0;
  uint32_t number = 0;  // on the wire; counts from 0 in each generation
  Operation operation;
  Descriptor descriptor{};
  uint32_t digest = 0;
  Coder coder;  // of contributions and sums
  Coder back;   // of results
  const Strategy* strategy = nullptr;
  Task task;
  unsigned world = 1;
  Times times;
  Prepared prepared;
  News news;
  Outcome outcome;
  int32_t token = 0;  // what a barrier sums up
  // How the tensor, or the part of it from element `base` on, is divided in the present stage.
  Blocks blocks;
  size_t base = 0;
  size_t offer = 0;  // elements to offer the coder: about as many as a packet takes
};

}  // namespace gradlane
