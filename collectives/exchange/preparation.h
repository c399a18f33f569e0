// preparation.h - the work before the first element: seeds, scans of the tensor, agreement with other ranks (lane's
// thread)
#pragma once

#include <cstddef>
#include <optional>

#include "collectives/exchange/algorithm.h"
#include "collectives/exchange/membership.h"
#include "collectives/exchange/operation_table.h"

namespace gradlane {

// Some codecs scan the whole tensor first, and ranks agree on a value that follows from the scans. Meanwhile the
// operation runs, but it is not ready: it sends and takes no elements.
class Preparation {
 public:
  Preparation(const EngineParts& parts, const Membership& membership, OperationTable& table) noexcept
      : parts_(parts), membership_(membership), table_(table) {}

  // Starts the preparation of an operation. It is ready right away if its codec scans nothing.
  void begin(OperationState& it) noexcept;
  // Estimates from a sample how much rounding loses of this rank's contribution. Call it when the operation is ready.
  void sample_loss_of(OperationState& it) noexcept;
  // Continues the scans, as far as the limit of one poll allows. Small tensors go first, so that they do not wait for a
  // large one.
  void poll() noexcept;
  // Returns whether an operation waits because other exchanges, which have parts of its tensor, have not finished
  // scanning.
  [[nodiscard]] bool waits_for_others() const noexcept { return others_scan_; }

 private:
  void scan_on(OperationState& it, size_t& floats) noexcept;
  void go_on(OperationState& it) noexcept;
  [[nodiscard]] std::optional<float> agreed(const OperationState& it) const noexcept;
  void finish_scan(OperationState& it, float agreed) noexcept;

  const EngineParts& parts_;
  const Membership& membership_;
  OperationTable& table_;
  bool others_scan_ = false;
};

}  // namespace gradlane
