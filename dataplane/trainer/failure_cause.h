// failure_cause.h - why an operation has failed, as trainers are told: codes and texts (worker thread)
#pragma once

#include <cstdint>
#include <optional>

#include "base/fixed_text.h"
#include "client/abi.h"
#include "client/gradlane.h"
#include "collectives/operation.h"

namespace gradlane {

// The cause for programs, and the text for people. An operation that has not failed has no cause.
struct FailureCause {
  gradlane_cause cause = GRADLANE_CAUSE_NONE;
  FixedText<GL_TEXT> text;  // as much as a completion can say

  [[nodiscard]] bool empty() const noexcept { return cause == GRADLANE_CAUSE_NONE; }
  void clear() noexcept {
    cause = GRADLANE_CAUSE_NONE;
    text.clear();
  }
};
inline const FailureCause kNoFailure;

// Translates what the exchange says; collectives/failure.cc has these texts.
[[nodiscard]] FailureCause cause_of(const Failure& failure) noexcept;

// ---- Failures that begin on this node
// A trainer has ended, or closed its context. rank: none where the node has one trainer.
[[nodiscard]] FailureCause trainer_gone(std::optional<uint64_t> rank) noexcept;
// A new trainer of this rank came while operations of the one before were in flight.
[[nodiscard]] FailureCause trainer_replaced(uint64_t rank) noexcept;
// The operation had failed before this trainer submitted it.
[[nodiscard]] FailureCause failed_before() noexcept;
[[nodiscard]] FailureCause trainer_resumed(uint64_t rank) noexcept;
[[nodiscard]] FailureCause cancelled_by(uint64_t rank) noexcept;
// why: what ends the daemon; null: it was told to shut down.
[[nodiscard]] FailureCause daemon_ends(const char* why) noexcept;

}  // namespace gradlane
