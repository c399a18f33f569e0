// operation_state.h - one operation on one rank, and the memory that grows with its tensor (lane's thread)
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
#include "collectives/exchange/decoded_blocks.h"
#include "collectives/exchange/ordered_reducer.h"
#include "collectives/exchange/pending_bitmap.h"
#include "collectives/operation.h"
#include "collectives/strategy/strategy.h"
#include "collectives/wire.h"

namespace gradlane {

// The memory of an operation that grows with its tensor.
struct OperationMemory {
  // Allocates memory for tensors of at most `granules` granules. `relayed`: number of granules that may hold results
  // of other ranks which are sent on from the tensor. `owners`: number of ranks if blocks may have owners, else 0.
  // `small`: see OrderedReducer.
  OperationMemory(size_t granules, size_t relayed, unsigned owners, bool small)
      : partial(granules),
        result(granules),
        digests(std::make_unique_for_overwrite<uint32_t[]>(relayed)),
        turns(owners, small) {}

  PendingBitmap partial;  // partial sums in the tensor that wait to be sent
  PendingBitmap result;   // results in the tensor that wait to be sent
  // CRC32C of each granule, for results that other ranks will get from the tensor. Not initialized, so that the kernel
  // allocates pages only where results wait.
  std::unique_ptr<uint32_t[]> digests;
  OrderedReducer turns;  // contributions to the block that this rank owns
  bool taken = false;
};

// One operation, from submit() until its completion has been read and all neighbours have received their notices. Its
// Algorithm moves its elements.
struct OperationState {
  enum class State : uint8_t {
    kFree,
    kWaiting,  // until the ring is ready and poll() starts it
    kRunning,
    kOver,
  };

  struct Times {
    Nanos submitted = 0;
    Nanos deadline = 0;
    Nanos tell_all = kNever;  // time to inform all neighbours that have not started it that this rank has
  };

  // The state before the first element moves: Preparation.
  struct Prepared {
    bool ready = true;          // elements may move; until then no stage is announced, so neighbours send none
    bool counted = true;        // this rank's scan was subtracted from Operation::scans_left, or need not be
    unsigned stage_offset = 0;  // 1 if the codec scans the tensor first: then stages are announced as 1, 2, ...; else 0
    std::optional<float> local_offer;  // this rank's offer for the value that all ranks agree on
    LinkSet ready_notification;        // neighbours to inform when it is ready
    std::unique_ptr<TensorScan> scan = std::make_unique<TensorScan>();
  };

  // Notices to neighbours that Control still has to send.
  struct Notices {
    LinkSet start;       // links to inform that it has started
    LinkSet failure;     // links to inform that it has failed
    uint8_t origin = 0;  // rank on which the failure began

    [[nodiscard]] bool none() const noexcept { return start.none() && failure.none(); }
  };

  struct Outcome {
    // The failure of an operation that is over. While it runs: the failure that its algorithm has found. While it
    // waits: the failure that it gets when it starts.
    Failure failure;
    bool residual_cleared = false;
    Loss loss;
    uint64_t sent_bytes = 0;  // Completion::sent_bytes, runs and run_bytes so far
    size_t runs = 0;
    size_t run_bytes = 0;
  };

  OperationState(size_t place_in_table, const Codec& codec, OperationMemory* small)
      : place(place_in_table), memory(small), coder(ElementType::kFloat32, codec), result_coder(coder) {}

  // ---- The tensor. Functions count elements from the first one of a block on.
  [[nodiscard]] uint8_t* elements(unsigned block, size_t element) const noexcept {
    return static_cast<uint8_t*>(operation.data) + (base + blocks.offset(block) + element) * coder.element_bytes();
  }
  // Returns the position and the residuals of elements: of this rank's contribution, or of a sum. A sum has a residual
  // only if encoded blocks of the codec cannot be added; it is in the second state array.
  [[nodiscard]] ElementContext context_of(unsigned block, size_t element, bool contribution) const noexcept {
    return context_at(static_cast<ptrdiff_t>(base + blocks.offset(block) + element), contribution);
  }
  [[nodiscard]] ElementContext context_at(ptrdiff_t element_of_tensor, bool contribution) const noexcept;
  // Completes results that have been sent or need not be sent: in the last stage of an average, divides them by
  // `world`.
  void complete(unsigned block, size_t element, size_t count) const noexcept {
    if (divides() && !gives_runs() && last_stage()) coder.divide(elements(block, element), count, world);
  }
  // Returns whether sums become averages when they are complete. A coder that rounds once has divided them already.
  [[nodiscard]] bool divides() const noexcept {
    return operation.reduction == Reduction::kAverage && !coder.rounds_once();
  }
  // Returns `count` elements, at most kMaxRunElements, of this rank's contribution. They are in the tensor or, if the
  // contribution is encoded, in `decoded`, until its next use. Returns null, and lets the operation fail, if the
  // encoded contribution is malformed.
  [[nodiscard]] const uint8_t* contribution(unsigned block, size_t element, size_t count,
                                            DecodedBlocks& decoded) noexcept;
  // Returns the bytes of the whole tensor, of which this exchange may have a part.
  [[nodiscard]] size_t tensor_bytes() const noexcept;
  // Decodes results of the last stage to their place, and completes them; or appends them to the runs. `buffer` has
  // space for kMaxRunElements elements.
  void store_final(std::span<const uint8_t> encoded, unsigned block, size_t element, size_t count,
                   std::span<uint8_t> buffer) noexcept;
  // Returns whether results of this stage become runs: append_run() appends an encoded result to Operation::runs.
  [[nodiscard]] bool gives_runs() const noexcept { return operation.runs.data != nullptr && final_stage; }
  void append_run(std::span<const uint8_t> encoded, unsigned block, size_t element, size_t count) noexcept;
  // Copies elements of an all-to-all that stay on this rank, as many as a poll may. Returns their number.
  size_t copy_share(unsigned block, size_t first, PollBudget& budget) const noexcept;

  // ---- The stage
  //
  // Returns whether this rank adds its contribution to the sums of this stage.
  [[nodiscard]] bool adds_contributions() const noexcept { return reduces(route.kind) && route.stage == 0; }
  // Returns whether the last addition of this stage completes the sum of all contributions.
  [[nodiscard]] bool sums_end() const noexcept {
    return reduces(route.kind) && route.stage == strategy->stages(route.kind) / 2;
  }
  [[nodiscard]] bool last_stage() const noexcept { return route.stage + 1 >= strategy->stages(operation.kind); }
  [[nodiscard]] RunHeader run_header(const Coder& by, Phase phase, unsigned block, size_t element) const noexcept;

  // ---- Codecs
  // Makes the coders from the present state of the operation's codecs.
  void make_coders() noexcept;
  // Records that this rank has scanned the tensor, or need not scan it.
  void note_scanned() noexcept;
  // Sets the residual to zero: the operation failed while sums were under way, so the old residual is lost.
  void clear_residual() noexcept;

  const size_t place;       // index in the table of operations
  OperationMemory* memory;  // memory for the tensor; meaningless while the slot is free
  AlgorithmSet algorithms;
  Algorithm* algorithm = nullptr;  // member of `algorithms` that it uses, from its start on
  State state = State::kFree;
  bool unread = false;  // its completion has not been read
  uint64_t id = 0;
  uint32_t number = 0;  // number on the wire; counts from 0 in each generation
  Operation operation;
  Descriptor descriptor{};
  uint32_t digest = 0;
  Coder coder;         // coder of contributions and sums
  Coder result_coder;  // coder of results
  const Strategy* strategy = nullptr;
  RouteKey route;
  unsigned world = 1;
  unsigned rank = 0;
  Times times;
  Prepared prepared;
  Notices notices;
  Outcome outcome;
  int32_t token = 0;  // the one element that a barrier adds over all ranks
  // The division of the tensor in the present stage, or of its part from element `base` on.
  Blocks blocks;
  size_t base = 0;
  size_t offer = 0;         // number of elements to offer the coder: about as many as a packet takes
  bool final_stage = true;  // last_stage(), computed once for each stage
  bool streams = false;     // results are written past the caches, as the tensor is larger than they are
};

}  // namespace gradlane
