// shutdown.cc - the orderly end, phase by phase (control thread only)
#include "dataplane/daemon/shutdown.h"

#include <spdlog/spdlog.h>

#include <algorithm>

namespace gradlane {
namespace {

constexpr Nanos kNotifyTime = 50 * kMillisecond;     // time for the other ranks to learn that this one ends
constexpr Nanos kReleaseTime = 2000 * kMillisecond;  // time for lanes to release the memory of trainers

}  // namespace

Shutdown::Shutdown(std::span<const std::unique_ptr<Node>> nodes, const char* why, Nanos now)
    : nodes_(nodes), why_(why) {
  for (const auto& node : nodes_) timeout_ = std::max(timeout_, node->config().shutdown_timeout);
  if (why_ != nullptr) timeout_ = 0;
  until_ = now + timeout_;
}

bool Shutdown::is_phase_done() const {
  const auto all = [this](auto predicate) { return std::ranges::all_of(nodes_, predicate); };
  switch (phase_) {
    case Phase::kOperations:
      return all([](const auto& node) { return node->in_flight() == 0; });
    case Phase::kLanes:
      return all([](const auto& node) { return node->closed(); });
    case Phase::kTrainers:
      return all([](const auto& node) { return node->server().finished(); });
    case Phase::kNotify:
    case Phase::kDone:
      break;
  }
  return false;
}

void Shutdown::next_phase(Nanos now) {
  switch (phase_) {
    case Phase::kOperations:
      if (!is_phase_done()) {
        spdlog::warn("operations are still in flight after {} ms: they fail", timeout_ / kMillisecond);
      }
      for (const auto& node : nodes_) node->post_close(why_);
      phase_ = Phase::kLanes;
      until_ = now + kReleaseTime;
      return;
    case Phase::kLanes:
      phase_ = Phase::kNotify;
      until_ = now + kNotifyTime;
      return;
    case Phase::kNotify:
      for (const auto& node : nodes_) {
        node->server().close(why_ != nullptr ? why_ : "the daemon is shutting down", now);
      }
      phase_ = Phase::kTrainers;
      until_ = now + kReleaseTime;
      return;
    case Phase::kTrainers:
    case Phase::kDone:
      phase_ = Phase::kDone;
  }
}

bool Shutdown::step(Nanos now, bool hurry) {
  for (; phase_ != Phase::kDone && (hurry || is_phase_done() || now >= until_); hurry = false) next_phase(now);
  return phase_ == Phase::kDone;
}

}  // namespace gradlane
