// drivers.h - DPDK's driver for a device, and where to get it (control thread only)
#pragma once

#include <string>
#include <string_view>

namespace gradlane {

// Returns the driver of a card: "net_e1000" for "8086:10d3". Returns an empty text if it is not known.
[[nodiscard]] std::string driver_of_card(std::string_view ids);
// Returns whether net_e1000 may be the driver of a card. It may be if the driver is net_e1000, or if the card is one of
// Intel's that this file does not list: a later DPDK may know it.
[[nodiscard]] bool may_be_e1000(std::string_view ids);
// Returns the driver of a virtual device: "net_virtio" for "net_virtio_user0,...". Returns an empty text if it is not
// known.
[[nodiscard]] std::string driver_of_device(std::string_view devargs);

// Returns whether EAL has loaded the driver's library, or the driver is linked in.
[[nodiscard]] bool driver_loaded(const std::string& driver);
// Returns the error text for a missing driver: "DPDK's driver librte_net_e1000.so is not in ...: ...".
[[nodiscard]] std::string missing_driver(const std::string& driver);
// Returns advice that names the Debian package with all drivers. In a program with linked-in drivers, it names these.
[[nodiscard]] std::string all_drivers();

}  // namespace gradlane
