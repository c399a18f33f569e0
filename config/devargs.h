// devargs.h - DPDK's device arguments as text: "net_memif0,role=server,..." (set-up only)
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "config/config.h"

namespace gradlane {

// Returns "net_memif0" for "net_memif0,role=server,...".
[[nodiscard]] std::string_view device_name(std::string_view devargs) noexcept;

// Returns the value of a key of devargs, or nothing.
[[nodiscard]] std::optional<std::string_view> devargs_argument(std::string_view devargs, std::string_view key) noexcept;
// Returns the value of a key of devargs, or "" if there is no such key.
[[nodiscard]] std::string devargs_value(std::string_view devargs, std::string_view key);

// Return whether the port's device has this driver, by its current or its older name.
[[nodiscard]] bool is_af_packet(const PortConfig& port) noexcept;
[[nodiscard]] bool is_af_xdp(const PortConfig& port) noexcept;
[[nodiscard]] bool is_memif(const PortConfig& port) noexcept;
[[nodiscard]] bool is_tap(const PortConfig& port) noexcept;
[[nodiscard]] bool is_vhost(const PortConfig& port) noexcept;
[[nodiscard]] bool is_virtio(const PortConfig& port) noexcept;  // virtio_user

}  // namespace gradlane
