// delivery_algorithm.h - blocks that go from one rank to one other: gather, scatter, all-to-all (packet path)
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "collectives/exchange/algorithm.h"
#include "collectives/exchange/block_sender.h"

namespace gradlane {

// No credits are needed, because elements that arrive go straight to their place in memory. A receiver reports that it
// has started the operation, and a sender waits for nothing else.
class DeliveryAlgorithm final : public Algorithm {
 public:
  DeliveryAlgorithm(OperationState& it, const EngineParts& parts);

  void begin() noexcept override;
  [[nodiscard]] bool accepts(const Run& run, size_t link, std::span<const Run> before) const noexcept override;
  void on_run(const Run& run, size_t link, bool relayed, Nanos now) noexcept override;
  bool send_own(Nanos now) noexcept override;
  [[nodiscard]] bool done() const noexcept override { return results_left_ == 0 && sender_.all_sent(); }
  [[nodiscard]] unsigned awaited() const noexcept override;
  [[nodiscard]] std::optional<unsigned> missing_from() const noexcept override { return awaited(); }
  [[nodiscard]] std::optional<Step> next_step() noexcept override { return sender_.next_step(it_); }

 private:
  BlockSender sender_;
  std::vector<size_t> due_;  // by rank: elements that are still to arrive from it
  size_t results_left_ = 0;  // sum of `due_`
};

}  // namespace gradlane
