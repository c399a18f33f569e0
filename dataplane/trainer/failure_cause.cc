// failure_cause.cc - causes of failed operations, as trainers receive them (worker thread)
#include "dataplane/trainer/failure_cause.h"

namespace gradlane {
namespace {

gradlane_cause code_of(const Failure& failure) noexcept {
  switch (failure.code) {
    case FailureCode::kNone:
      return GRADLANE_CAUSE_NONE;
    case FailureCode::kSilent:
      return GRADLANE_CAUSE_SILENT;
    case FailureCode::kRestarted:
      return GRADLANE_CAUSE_RESTARTED;
    case FailureCode::kRefused:
      return GRADLANE_CAUSE_CONFIGURED;
    case FailureCode::kMismatch:
      return failure.field == Field::kTag ? GRADLANE_CAUSE_TAG : GRADLANE_CAUSE_MISMATCH;
    case FailureCode::kAborted:
      return failure.field == Field::kEncoded ? GRADLANE_CAUSE_OTHER : GRADLANE_CAUSE_CANCELLED;
    case FailureCode::kNoRing:
      return GRADLANE_CAUSE_NO_RING;
    case FailureCode::kStuck:
      return GRADLANE_CAUSE_TIMEOUT;
    case FailureCode::kClosed:
      return GRADLANE_CAUSE_NODE_LEFT;
    case FailureCode::kDuplicateRank:
      return GRADLANE_CAUSE_DUPLICATE;
  }
  return GRADLANE_CAUSE_OTHER;
}

}  // namespace

FailureCause cause_of(const Failure& failure) noexcept {
  FailureText text;
  add_failure(text, failure);
  return {.cause = code_of(failure), .text = text.view()};
}

FailureCause trainer_gone(std::optional<uint64_t> rank) noexcept {
  FailureCause cause = {.cause = GRADLANE_CAUSE_TRAINER_GONE, .text = {}};
  if (rank) {
    cause.text.add("rank ").add(*rank).add(", a trainer of this node, has left");
  } else {
    cause.text.add("a trainer of this node has left");
  }
  return cause;
}

FailureCause trainer_replaced(uint64_t rank) noexcept {
  FailureCause cause = {.cause = GRADLANE_CAUSE_TRAINER_GONE, .text = {}};
  cause.text.add("a new trainer has replaced rank ").add(rank).add(", a trainer of this node that has left");
  return cause;
}

FailureCause failed_before() noexcept {
  return {GRADLANE_CAUSE_OTHER,
          "it failed before this trainer submitted it: another trainer of this node has left, or has cancelled it"};
}

FailureCause trainer_resumed(uint64_t rank) noexcept {
  FailureCause cause = {.cause = GRADLANE_CAUSE_RESUMED, .text = {}};
  cause.text.add("rank ").add(rank).add(" has called gradlane_resume");
  return cause;
}

FailureCause cancelled_by(uint64_t rank) noexcept {
  FailureCause cause = {.cause = GRADLANE_CAUSE_CANCELLED, .text = {}};
  cause.text.add("rank ").add(rank).add(" has cancelled it");
  return cause;
}

FailureCause daemon_ends(const char* why) noexcept {
  return {GRADLANE_CAUSE_NODE_LEFT, why != nullptr ? why : "the daemon is shutting down"};
}

}  // namespace gradlane
