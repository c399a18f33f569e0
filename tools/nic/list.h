// list.h - the table of `gradlane nic list` (main thread only)
#pragma once

#include "tools/nic/host.h"

namespace gradlane {

// Prints all network devices on the PCI bus.
void list_nics(const Host& host, bool json);

}  // namespace gradlane
