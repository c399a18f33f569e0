// devargs.cc - DPDK's device arguments as text (set-up only)
#include "config/devargs.h"

#include <algorithm>
#include <initializer_list>

namespace gradlane {
namespace {

bool is_driver(const PortConfig& port, std::initializer_list<std::string_view> names) noexcept {
  return port.kind == PortConfig::Kind::kDevice &&
         std::ranges::any_of(names, [&port](std::string_view name) { return port.device.starts_with(name); });
}

}  // namespace

std::string_view device_name(std::string_view devargs) noexcept { return devargs.substr(0, devargs.find(',')); }

std::optional<std::string_view> devargs_argument(std::string_view devargs, std::string_view key) noexcept {
  while (true) {
    const size_t comma = devargs.find(',');
    if (comma == devargs.npos) return std::nullopt;
    devargs.remove_prefix(comma + 1);
    if (devargs.starts_with(key) && devargs.substr(key.size()).starts_with('=')) {
      return device_name(devargs.substr(key.size() + 1));
    }
  }
}

std::string devargs_value(std::string_view devargs, std::string_view key) {
  return std::string(devargs_argument(devargs, key).value_or(""));
}

bool is_af_packet(const PortConfig& port) noexcept { return is_driver(port, {"net_af_packet", "eth_af_packet"}); }
bool is_af_xdp(const PortConfig& port) noexcept { return is_driver(port, {"net_af_xdp"}); }
bool is_memif(const PortConfig& port) noexcept { return is_driver(port, {"net_memif"}); }
bool is_tap(const PortConfig& port) noexcept { return is_driver(port, {"net_tap"}); }
bool is_vhost(const PortConfig& port) noexcept { return is_driver(port, {"net_vhost", "eth_vhost"}); }
bool is_virtio(const PortConfig& port) noexcept { return is_driver(port, {"net_virtio_user", "virtio_user"}); }

}  // namespace gradlane
