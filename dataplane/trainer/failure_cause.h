// failure_cause.h - why an operation has failed, as trainers are told (worker thread)
#pragma once

#include "base/fixed_text.h"
#include "client/abi.h"
#include "client/gradlane.h"
#include "collectives/operation.h"

namespace gradlane {

// A text and, for programs, its cause. Empty: it has not failed.
struct FailureCause {
  gradlane_cause cause = GRADLANE_CAUSE_NONE;
  FixedText<GL_TEXT> text;  // as much as a completion can say

  [[nodiscard]] bool empty() const noexcept { return text.empty(); }
};

[[nodiscard]] FailureCause cause_of(const Failure& failure) noexcept;

}  // namespace gradlane
