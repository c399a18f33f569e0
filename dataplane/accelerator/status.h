// status.h - what an accelerator looks like from outside, as JSON (control thread only)
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "config/accelerator.h"
#include "dataplane/accelerator/watch.h"
#include "dataplane/accelerator/worker.h"
#include "dataplane/device/port.h"
#include "dataplane/kernel/port_hold.h"
#include "dataplane/status/status.h"
#include "dataplane/watch/admin.h"

namespace gradlane {

// Where to look.
struct AcceleratorParts {
  const AcceleratorConfig& config;
  const ProcessFacts& process;
  const Port& host;
  const Port& wire;
  const AcceleratorWorker& worker;
  const AcceleratorWatch& watch;
  const PortHold& hold;
};

// The document that docs/accelerator.md describes.
[[nodiscard]] nlohmann::json accelerator_json(const AcceleratorParts& parts);

// The answer to a line that came by the admin socket: "stats".
[[nodiscard]] AdminAnswer answer_accelerator_admin(const AcceleratorParts& parts, const std::string& request);

}  // namespace gradlane
