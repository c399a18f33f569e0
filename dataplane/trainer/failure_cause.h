// failure_cause.h - causes of failed operations, as trainers receive them: codes and texts (worker thread)
#pragma once

#include <cstdint>
#include <optional>

#include "base/fixed_text.h"
#include "client/abi.h"
#include "client/gradlane.h"
#include "collectives/operation.h"

namespace gradlane {

// The cause of a failure: a code for programs and a text for people. An operation that has not failed has no cause.
struct FailureCause {
  gradlane_cause cause = GRADLANE_CAUSE_NONE;
  FixedText<GL_TEXT> text;  // cut to the length of a completion's text

  [[nodiscard]] bool empty() const noexcept { return cause == GRADLANE_CAUSE_NONE; }
  void clear() noexcept {
    cause = GRADLANE_CAUSE_NONE;
    text.clear();
  }
};
inline const FailureCause kNoFailure;

// Translates a failure that the exchange reports; collectives/failure.cc has its texts.
[[nodiscard]] FailureCause cause_of(const Failure& failure) noexcept;

// ---- Failures that begin on this node
// A trainer has exited or closed its context. `rank` is empty if it is not known, or if trainers do not reduce locally.
[[nodiscard]] FailureCause trainer_gone(std::optional<uint64_t> rank) noexcept;
// A new trainer of this rank has attached in a generation in which operations of the earlier trainer had begun.
[[nodiscard]] FailureCause trainer_replaced(uint64_t rank) noexcept;
// The operation had failed before this trainer submitted it.
[[nodiscard]] FailureCause failed_before() noexcept;
[[nodiscard]] FailureCause trainer_resumed(uint64_t rank) noexcept;
[[nodiscard]] FailureCause cancelled_by(uint64_t rank) noexcept;
// `why` is the reason why the daemon ends; null: it was told to shut down.
[[nodiscard]] FailureCause daemon_ends(const char* why) noexcept;

}  // namespace gradlane
