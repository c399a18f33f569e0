// ring_algorithm.h - blocks that travel around a ring: each rank adds to sums, and passes results on (packet path)
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "collectives/exchange/algorithm.h"
#include "collectives/exchange/coder.h"
#include "collectives/exchange/egress.h"
#include "collectives/exchange/pending_bitmap.h"

namespace gradlane {

// The algorithm of `ring`, and of each stage of `rings:G`. Sums and results that arrive are passed on at once if the
// link has space. They may exceed its window by a quarter or a half (Link::can_pass(), can_relay()), so that new runs
// cannot fill the ring and block those under way. A run that finds no space waits in the tensor, and leaves before this
// rank's own elements. So a rank can take any packet at any time, whatever its successor does, and the ring cannot
// deadlock.
//
// The trainer can write to the tensor at any time. So results that other ranks will get from the tensor have digests. A
// digest is made from a copy that the trainer cannot write to (EngineParts::private_copy). Before results are sent,
// they are compared with their digests.
class RingAlgorithm final : public Algorithm {
 public:
  RingAlgorithm(OperationState& it, const EngineParts& parts) noexcept : Algorithm(it, parts) {}

  void begin() noexcept override;
  void end() noexcept override;
  [[nodiscard]] bool accepts(const Run& run, size_t link, std::span<const Run> before) const noexcept override;
  void on_run(const Run& run, size_t link, bool relayed, Nanos now) noexcept override;
  bool send_passing(Nanos now) noexcept override;
  bool send_own(Nanos now) noexcept override;
  [[nodiscard]] bool done() const noexcept override;
  [[nodiscard]] unsigned awaited() const noexcept override;
  [[nodiscard]] std::optional<unsigned> missing_from() const noexcept override;
  [[nodiscard]] std::optional<Step> next_step() noexcept override;

 private:
  [[nodiscard]] bool all_sent() const noexcept;
  [[nodiscard]] PendingBitmap& pending(Phase phase) const noexcept;
  // ---- Arrivals
  void take_sum(const Run& run, Nanos now) noexcept;
  [[nodiscard]] const uint8_t* addends(unsigned block, size_t first, size_t count) noexcept;
  size_t pass_on(const Run& run, Nanos now) noexcept;
  void absorb(const Run& run, size_t done) noexcept;
  void add_sum(const Run& run) noexcept;
  void take_result(const Run& run, bool relayed, Nanos now) noexcept;
  bool copy(const Run& run, Nanos now) noexcept;
  // ---- Sending
  bool send_pending(Phase phase, Nanos now) noexcept;
  bool send_next(Nanos now) noexcept;
  size_t send(const Step& step, const Egress::Source& from, Nanos now) noexcept;
  // ---- Results in the tensor
  void store_result(const Coder& coder, unsigned block, size_t first, std::span<const uint8_t> encoded,
                    size_t count) noexcept;
  void store_with_digests(const Coder& coder, unsigned block, size_t first, std::span<const uint8_t> encoded,
                          size_t count) noexcept;
  uint8_t* read_result(unsigned block, size_t first, size_t count) noexcept;
  [[nodiscard]] uint32_t* digests(unsigned block, size_t element) const noexcept;

  size_t from_ = 0;              // link by which runs arrive
  size_t sums_left_ = 0;         // elements of Phase::kReduce to receive
  size_t results_left_ = 0;      // elements of Phase::kGather to receive
  Egress::PerChannel coming_{};  // elements of sums that will arrive and go on in an open packet, by channel
  unsigned own_block_ = 0;       // block of own elements that is being sent
  size_t own_sent_ = 0;          // its elements that have been sent
  size_t others_sent_ = 0;       // moving average of the position in their blocks up to which other ranks have sent
};

}  // namespace gradlane
