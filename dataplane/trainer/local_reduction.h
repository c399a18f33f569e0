// local_reduction.h - the local reduction: adds up a node's trainers before the ring and copies results to all of them,
// in pieces between polls (worker thread only)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "collectives/exchange/coder.h"
#include "collectives/operation.h"
#include "dataplane/trainer/share.h"
#include "dataplane/trainer/trainer_job.h"

namespace gradlane {

// Adds up the tensors of a node's trainers and copies the results back. A single trainer needs neither.
class LocalReduction {
 public:
  // `setup` must outlive this object.
  explicit LocalReduction(const TrainerOpsSetup& setup);

  // Called when a trainer has submitted its part: fails the job if the operation differs from the first trainer's.
  void compare(TrainerJob& job, unsigned trainer) const noexcept;

  // Called when all trainers have submitted. Finds this lane's share, and the tensor that the exchange works on.
  void begin(TrainerJob& job) const noexcept;
  // Does one poll's piece of the sum, or of the copies of the result. Returns whether it was the last piece.
  [[nodiscard]] bool sum_piece(TrainerJob& job) noexcept;
  [[nodiscard]] bool copy_piece(TrainerJob& job) const noexcept;

  // Returns this lane's share of a tensor or, where each rank has a block, its share of a block.
  [[nodiscard]] Share share(const Operation& operation) const noexcept;
  // Returns the number of elements of a tensor or, where ranks have blocks, of a block. With local reduction, all
  // trainers of a node are one rank, whose block consists of the blocks of these trainers.
  [[nodiscard]] size_t length_of(const Operation& operation) const noexcept;

 private:
  // A run of elements of a tensor. Where each trainer has a block, `owner` is the trainer whose block the run is in.
  struct Span {
    size_t element = 0;
    size_t count = 0;
    unsigned owner = 0;
  };

  [[nodiscard]] bool shares_buffer() const noexcept { return setup_.trainers > 1; }
  [[nodiscard]] bool exact(const Operation& operation) const noexcept;
  [[nodiscard]] Span span(const TrainerJob& job, bool all, size_t most) const noexcept;
  [[nodiscard]] const uint8_t* sum_block(TrainerJob& job, const Coder& coder, const Span& span) noexcept;
  static void put(TrainerJob& job, const uint8_t* from, const Span& span, unsigned to) noexcept;
  void hand_out(TrainerJob& job, const uint8_t* from, const Span& span) const noexcept;
  [[nodiscard]] size_t piece(const TrainerJob& job) const noexcept;
  [[nodiscard]] static uint8_t* elements(TrainerJob& job, unsigned trainer, size_t element) noexcept;

  const TrainerOpsSetup& setup_;
  struct alignas(64) Line {
    std::array<uint8_t, 64> bytes;
  };
  // two halves, which alternate: one has the sum so far, the other gets that sum plus the next trainer
  std::vector<Line> scratch_;
};

}  // namespace gradlane
