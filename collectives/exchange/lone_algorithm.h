// lone_algorithm.h - operations in a world of one: the result is the contribution, rounded as with more ranks (lane's
// thread)
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "collectives/exchange/algorithm.h"

namespace gradlane {

class LoneAlgorithm final : public Algorithm {
 public:
  LoneAlgorithm(OperationState& it, const EngineParts& parts) noexcept : Algorithm(it, parts) {}

  void begin() noexcept override;
  [[nodiscard]] bool accepts(const Run&, size_t, std::span<const Run>) const noexcept override { return false; }
  void on_run(const Run&, size_t, bool, Nanos) noexcept override {}
  bool send_own(Nanos now) noexcept override;
  [[nodiscard]] bool done() const noexcept override;
  [[nodiscard]] unsigned awaited() const noexcept override { return parts_.config.rank; }
  [[nodiscard]] std::optional<unsigned> missing_from() const noexcept override { return std::nullopt; }
  [[nodiscard]] std::optional<Step> next_step() noexcept override { return std::nullopt; }

 private:
  [[nodiscard]] bool round(size_t count) noexcept;
  void finish(uint8_t* sums, size_t count) noexcept;

  unsigned block_ = 0;  // block that is being worked on
  size_t done_ = 0;     // elements of this block that are results already
};

}  // namespace gradlane
