// device_list.h - entries in DPDK's list of devices, before threads make the devices (control thread only)
#pragma once

#include <string>

namespace gradlane {

// Adds a virtual device to DPDK's list, without making it. EAL must run. A device that cannot be listed is left out,
// and rte_dev_probe() will say why.
//
// rte_dev_probe() adds an entry to this list, which has no lock. If two threads do so at once, the list may lose one of
// the entries, and its device is not found. If the entry is there already, rte_dev_probe() changes it in place.
void list_device(const std::string& devargs);

}  // namespace gradlane
