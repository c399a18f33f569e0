// accelerator.h - the configuration of an accelerator, and of files of either mode (set-up only)
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "base/time.h"
#include "config/config.h"
#include "config/loader.h"

namespace gradlane {

// A file with `mode: accelerator` (docs/accelerator.md). It describes one process between a host port and a wire port.
struct AcceleratorConfig {
  std::string file;  // name of the file, for messages

  // ---- Packets. The ports are named "host" and "wire", and are of kind kDevice or kPci.
  PortConfig host;
  PortConfig wire;
  std::string interface = "gl0";  // kernel's end of the host port's veth pair, which programs use
  bool superpackets = false;      // true if the kernel leaves TCP segmentation on the host port to this process
  size_t mtu = 1500;              // MTU of IP, on both sides
  Codec codec = find_codec(kDefaultLossyCodec);  // a codec that its CodecRow allows for accelerators
  uint8_t tos_compressed = 0x28;                 // ToS byte by which programs ask for compression
  uint8_t tos_wire = 0x30;                       // ToS byte of compressed packets between accelerators
  uint16_t udp_port = 18400;                     // UDP port of hellos and answers between accelerators

  // ---- Several compressed packets in one.
  bool repack = true;
  Nanos repack_hold = 20 * kMicrosecond;  // most time that a packet waits for others

  // ---- Memory.
  size_t connections = 65536;        // TCP connections that are known at the same time
  size_t memory = size_t{64} << 20;  // bytes for TCP data that is compressed and not acknowledged yet
  bool hugepages = false;

  // ---- The worker.
  IdlePolicy idle = IdlePolicy::kAdaptive;
  std::optional<unsigned> core;  // CPU of the thread; absent: the scheduler chooses

  InjectedFaults faults;  // faults in frames that the wire port receives

  // ---- Users, sockets and logs.
  bool containment = true;  // as in NodeConfig
  std::string user;         // user that the process becomes after it has all its devices; empty: it keeps its user
  std::string admin = "/run/gradlane/accelerator.admin";
  std::string log = "info";  // trace, debug, info, warn, error
  std::string log_file;      // path, reopened on SIGHUP; empty: standard error
};

// The configuration of either mode: `mode: node`, which is the default, or `mode: accelerator`.
using AnyConfig = std::variant<NodeConfig, AcceleratorConfig>;

// Read files of both modes, like parse_config() and read_config() of config/loader.h. A rank that the caller gives
// takes precedence over the one in the file; for an accelerator's file it is a fault. `settings` are those of
// apply_settings() in config/set_option.h.
[[nodiscard]] AnyConfig load_any_config(const std::string& path, std::optional<unsigned> rank = {},
                                        std::span<const std::string> settings = {});
[[nodiscard]] AnyConfig parse_any_config(std::string_view text, const std::string& name, const NodeChoice& choice = {});
[[nodiscard]] AnyConfig read_any_config(const ConfigTree& source, const NodeChoice& choice = {});

// Returns all settings, defaults included, as a file that reads to the same AcceleratorConfig.
[[nodiscard]] std::string config_text(const AcceleratorConfig& config);

}  // namespace gradlane
