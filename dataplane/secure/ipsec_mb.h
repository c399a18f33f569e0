// ipsec_mb.h - AES-GCM by Intel's Multi-Buffer Crypto for IPsec, where there is one (any thread, one at a time)
#pragma once

#include <memory>

#include "dataplane/secure/gcm.h"

namespace gradlane {

// Returns null if gradlane was built without the library, or the CPU has no instructions for AES.
[[nodiscard]] std::unique_ptr<Gcm> make_ipsec_mb_gcm();

}  // namespace gradlane
