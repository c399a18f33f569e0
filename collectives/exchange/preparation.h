// preparation.h - before the first element: seeds, scans the tensor, agrees with other ranks (lane's thread)
#pragma once

#include <cstddef>
#include <optional>

#include "collectives/exchange/algorithm.h"
#include "collectives/exchange/membership.h"
#include "collectives/exchange/operation_table.h"

namespace gradlane {

// Some codecs look at the whole tensor first, and ranks agree on what they have found. The operation runs meanwhile,
// but it is not ready, and takes no elements.
class Preparation {
 public:
  Preparation(const EngineParts& parts, const Membership& membership, OperationTable& table) noexcept
      : parts_(parts), membership_(membership), table_(table) {}

  // The operation starts. It is ready right away where there is nothing to look at.
  void begin(Running& it) noexcept;
  // Called when it is ready: samples what rounding takes away from the tensor.
  void look_at_loss(Running& it) noexcept;
  // Continues the scans, as far as one poll may. Small tensors go first, so that they do not wait for a large one.
  void poll() noexcept;
  // Other exchanges have parts of the same tensor, and have not finished scanning them.
  [[nodiscard]] bool waits_for_others() const noexcept { return others_look_; }

 private:
  void look_on(Running& it, size_t& floats) noexcept;
  void go_on(Running& it) noexcept;
  [[nodiscard]] std::optional<float> agreed(const Running& it) const noexcept;
  void settle(Running& it, float agreed) noexcept;

  const EngineParts& parts_;
  const Membership& membership_;
  OperationTable& table_;
  bool others_look_ = false;
};

}  // namespace gradlane
