// control.h - control runs, which have no elements: start, abort and credit of an operation (packet path)
#pragma once

#include <cstddef>
#include <optional>

#include "collectives/counters.h"
#include "collectives/exchange/algorithm.h"
#include "collectives/exchange/lifecycle.h"
#include "collectives/exchange/operation_table.h"

namespace gradlane {

class Control {
 public:
  Control(const EngineParts& parts, OperationTable& table, Lifecycle& lifecycle) noexcept
      : parts_(parts), table_(table), lifecycle_(lifecycle) {}

  [[nodiscard]] static bool is_control(Phase phase) noexcept {
    return phase == Phase::kStart || phase == Phase::kAbort || phase == Phase::kCredit;
  }
  // Returns the counter for what is wrong with a control run; none if the run is valid.
  [[nodiscard]] std::optional<Counter> check(const Run& run, size_t link) noexcept;
  void on_run(const Run& run, size_t link) noexcept;

  // Sends the notices that neighbours must get, as far as their packets have space.
  void send(Nanos now) noexcept;

 private:
  void take_start(const Run& run, size_t link) noexcept;
  void take_abort(const Run& run) noexcept;
  void send_aborts(OperationState& it, Nanos now) noexcept;

  const EngineParts& parts_;
  OperationTable& table_;
  Lifecycle& lifecycle_;
};

}  // namespace gradlane
