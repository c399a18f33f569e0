// shutdown.h - the orderly end of a process's nodes (control thread only)
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/time.h"
#include "dataplane/node/node.h"

namespace gradlane {

// Phases: operations in flight get shutdown_timeout to complete; the remaining ones fail; the other ranks are notified;
// trainers are disconnected. Reads no clock: the caller calls step() between rounds of Housekeeping.
class Shutdown {
 public:
  // `why` names the lost device, without which no operation can complete; the text must stay valid. Null: an ordinary
  // end.
  Shutdown(std::span<const std::unique_ptr<Node>> nodes, const char* why, Nanos now);

  // Returns true at the end, when workers can be stopped. `hurry`: ends the current phase now.
  [[nodiscard]] bool step(Nanos now, bool hurry = false);

 private:
  enum class Phase : uint8_t { kOperations, kLanes, kNotify, kTrainers, kDone };
  [[nodiscard]] bool is_phase_done() const;
  void next_phase(Nanos now);

  const std::span<const std::unique_ptr<Node>> nodes_;
  const char* const why_;
  Phase phase_ = Phase::kOperations;
  Nanos timeout_ = 0;
  Nanos until_ = 0;  // latest end of the current phase
};

}  // namespace gradlane
