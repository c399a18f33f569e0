// shutdown.h - the orderly end of a process's nodes (control thread only)
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/time.h"
#include "dataplane/node/node.h"

namespace gradlane {

// Operations in flight have shutdown_timeout to end, those that are left fail, the other ranks hear of it, trainers are
// told and let go. Reads no clock: its owner calls step() between rounds of housekeeping.
class Shutdown {
 public:
  // `why`: what has gone, so that nothing can end well, and stays valid; null: it was told to end.
  Shutdown(std::span<const std::unique_ptr<Node>> nodes, const char* why, Nanos now);

  // True: it is over, and workers can be stopped. `hurry`: what is waited for just now is not waited for any longer.
  [[nodiscard]] bool step(Nanos now, bool hurry = false);

 private:
  enum class Phase : uint8_t { kOperations, kLanes, kNews, kTrainers, kOver };
  [[nodiscard]] bool done() const;
  void go_on(Nanos now);

  const std::span<const std::unique_ptr<Node>> nodes_;
  const char* const why_;
  Phase phase_ = Phase::kOperations;
  Nanos patience_ = 0;
  Nanos until_ = 0;  // the phase lasts no longer
};

}  // namespace gradlane
