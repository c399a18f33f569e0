// drivers.h - which of DPDK's drivers a device needs, and where to get it (control thread only)
#pragma once

#include <string>
#include <string_view>

namespace gradlane {

// "net_e1000" of "8086:10d3"; empty: not known.
[[nodiscard]] std::string driver_of_card(std::string_view ids);
// Whether net_e1000 may be its driver: it is, or the card is one of Intel's that is not known here. A later DPDK may
// know it.
[[nodiscard]] bool may_be_e1000(std::string_view ids);
// "net_virtio" of "net_virtio_user0,..."; empty: not known.
[[nodiscard]] std::string driver_of_device(std::string_view devargs);

// EAL has found its library, or it is linked in.
[[nodiscard]] bool driver_loaded(const std::string& driver);
// "DPDK's driver librte_net_e1000.so is not in ...: ...".
[[nodiscard]] std::string missing_driver(const std::string& driver);
// Which package of Debian has them all.
[[nodiscard]] std::string all_drivers();

}  // namespace gradlane
