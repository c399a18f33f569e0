// shutdown.cc - the orderly end, phase by phase (control thread only)
#include "dataplane/daemon/shutdown.h"

#include <spdlog/spdlog.h>

#include <algorithm>

namespace gradlane {
namespace {

constexpr Nanos kNewsTime = 50 * kMillisecond;  // for the other ranks to hear that this one ends
constexpr Nanos kLetGo = 2000 * kMillisecond;   // for lanes to let go of trainers' memory

}  // namespace

Shutdown::Shutdown(std::span<const std::unique_ptr<Node>> nodes, const char* why, Nanos now)
    : nodes_(nodes), why_(why) {
  for (const auto& node : nodes_) patience_ = std::max(patience_, node->config().shutdown_timeout);
  if (why_ != nullptr) patience_ = 0;
  until_ = now + patience_;
}

bool Shutdown::done() const {
  const auto all = [this](auto predicate) { return std::ranges::all_of(nodes_, predicate); };
  switch (phase_) {
    case Phase::kOperations:
      return all([](const auto& node) { return node->in_flight() == 0; });
    case Phase::kLanes:
      return all([](const auto& node) { return node->closed(); });
    case Phase::kTrainers:
      return all([](const auto& node) { return node->server().finished(); });
    case Phase::kNews:
    case Phase::kOver:
      break;
  }
  return false;
}

void Shutdown::go_on(Nanos now) {
  switch (phase_) {
    case Phase::kOperations:
      if (!done()) {
        spdlog::warn("operations are still in flight after {} ms: they fail", patience_ / kMillisecond);
      }
      for (const auto& node : nodes_) node->post_close(why_);
      phase_ = Phase::kLanes;
      until_ = now + kLetGo;
      return;
    case Phase::kLanes:
      phase_ = Phase::kNews;
      until_ = now + kNewsTime;
      return;
    case Phase::kNews:
      for (const auto& node : nodes_) {
        node->server().close(why_ != nullptr ? why_ : "the daemon is shutting down", now);
      }
      phase_ = Phase::kTrainers;
      until_ = now + kLetGo;
      return;
    case Phase::kTrainers:
    case Phase::kOver:
      phase_ = Phase::kOver;
  }
}

bool Shutdown::step(Nanos now, bool hurry) {
  for (; phase_ != Phase::kOver && (hurry || done() || now >= until_); hurry = false) go_on(now);
  return phase_ == Phase::kOver;
}

}  // namespace gradlane
