// device_list.cc - entries in DPDK's list of devices, before threads make the devices (control thread only)
#include "dataplane/daemon/device_list.h"

#include <rte_devargs.h>

#include <cstdlib>

namespace gradlane {

void list_device(const std::string& devargs) {
  auto* entry = static_cast<rte_devargs*>(std::calloc(1, sizeof(rte_devargs)));  // DPDK frees it
  if (entry == nullptr) return;
  if (rte_devargs_parse(entry, devargs.c_str()) != 0 || rte_devargs_insert(&entry) != 0) std::free(entry);
}

}  // namespace gradlane
