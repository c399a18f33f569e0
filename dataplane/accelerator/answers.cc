// answers.cc - answers of an accelerator to requests on its admin socket (control thread only)
#include "dataplane/accelerator/answers.h"

#include <nlohmann/json.hpp>

#include "dataplane/accelerator/status.h"

namespace gradlane {

AdminAnswer answer_accelerator_admin(const AcceleratorParts& parts, const std::string& request) {
  if (request != "stats") return {admin_error("unknown request; allowed: stats"), {}};
  return {admin_text(accelerator_json(accelerator_figures(parts))), {}};
}

}  // namespace gradlane
