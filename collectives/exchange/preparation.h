// preparation.h - what an operation does before its first element: seeds, looks at the tensor, agrees (lane's thread)
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
  // It is ready: a sample shows what rounding takes away.
  void look_at_loss(Running& it) noexcept;
  // Looks on, one operation after the other, as far as a poll goes. Small ones need not wait until a large one has.
  void poll() noexcept;
  // Other exchanges have parts of a tensor, and still look at these.
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
