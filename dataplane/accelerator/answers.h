// answers.h - answers of an accelerator to requests on its admin socket (control thread only)
#pragma once

#include <string>

#include "dataplane/accelerator/figures.h"
#include "dataplane/watch/admin_socket.h"

namespace gradlane {

// Returns the answer to a line that arrived on the admin socket. The only request is "stats".
[[nodiscard]] AdminAnswer answer_accelerator_admin(const AcceleratorParts& parts, const std::string& request);

}  // namespace gradlane
