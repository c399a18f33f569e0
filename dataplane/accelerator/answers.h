// answers.h - what people and tools ask an accelerator, and its answers (control thread only)
#pragma once

#include <string>

#include "dataplane/accelerator/figures.h"
#include "dataplane/watch/admin_socket.h"

namespace gradlane {

// The answer to a line that came by the admin socket: "stats".
[[nodiscard]] AdminAnswer answer_accelerator_admin(const AcceleratorParts& parts, const std::string& request);

}  // namespace gradlane
