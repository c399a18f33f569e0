// local_reduction.h - trainers of one node: added up before the ring, results to all of them, in pieces between polls
// (worker thread only)
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

// With one trainer there is nothing to add up or to copy.
class LocalReduction {
 public:
  // `setup` outlives this.
  explicit LocalReduction(const TrainerOpsSetup& setup);

  // A trainer has submitted its part: fails the job if that is another operation than the first one's.
  void compare(TrainerJob& job, unsigned trainer) const noexcept;

  // All trainers have. Finds this lane's share, and whose tensor the exchange shall work on.
  void begin(TrainerJob& job) const noexcept;
  // A poll's piece of the sum, and of the copies of the result. Whether that was the last one.
  [[nodiscard]] bool sum_piece(TrainerJob& job) noexcept;
  [[nodiscard]] bool copy_piece(TrainerJob& job) const noexcept;

  // This lane's share of a tensor, or of each rank's block.
  [[nodiscard]] Share share(const Operation& operation) const noexcept;
  // Elements of a tensor or, where ranks have blocks, of a block: that of trainers which are one rank has all of
  // theirs.
  [[nodiscard]] size_t length_of(const Operation& operation) const noexcept;

 private:
  // Elements of a tensor, and where each trainer has a block, whose they are.
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
  std::vector<Line> scratch_;  // two halves: sums so far, and with the next trainer's
};

}  // namespace gradlane
