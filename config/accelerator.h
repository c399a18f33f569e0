// accelerator.h - the configuration of an accelerator, and of whatever mode a file says (set-up only)
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

// A file with `mode: accelerator` (docs/accelerator.md): one process between a host port and a wire port.
struct AcceleratorConfig {
  std::string file;  // where it was read from, for messages

  // ---- How packets travel. Names "host" and "wire"; kinds kDevice and kPci.
  PortConfig host;
  PortConfig wire;
  std::string interface = "gl0";                 // the kernel's end of the host port's veth, that programs use
  bool superpackets = false;                     // the host port leaves TCP's segmentation to this process
  size_t mtu = 1500;                             // of IP, on both sides
  Codec codec = find_codec(kDefaultLossyCodec);  // one that is fit for it: CodecRow
  uint8_t tos_compressed = 0x28;                 // programs ask for compression with it
  uint8_t tos_wire = 0x30;                       // what is compressed has it between accelerators
  uint16_t udp_port = 18400;                     // where accelerators ask each other whether they are there

  // ---- Several compressed packets in one.
  bool repack = true;
  Nanos repack_hold = 20 * kMicrosecond;  // most time that a packet waits for others

  // ---- Memory.
  size_t connections = 65536;        // of TCP, that are known at the same time
  size_t memory = size_t{64} << 20;  // for what was compressed and not acknowledged yet
  bool hugepages = false;

  // ---- The worker.
  IdlePolicy idle = IdlePolicy::kAdaptive;
  std::optional<unsigned> core;  // absent: wherever the scheduler likes

  InjectedFaults faults;  // in what the wire port receives

  // ---- Talking to the outside.
  std::string user;  // whom it becomes once it has all it needs; empty: it stays who it is
  std::string admin = "/run/gradlane/accelerator.admin";
  std::string log = "info";  // trace, debug, info, warn, error
  std::string log_file;      // path; opened anew on SIGHUP; empty: standard error
};

// By `mode`: node, which is the default, or accelerator.
using AnyConfig = std::variant<NodeConfig, AcceleratorConfig>;

// As parse_config() and read_config() of config/loader.h, for files of both modes.
// A rank is that of a node that the file is read for, whatever it says itself; a fault in an accelerator's file.
// `settings`: as of apply_settings() of config/set_option.h.
[[nodiscard]] AnyConfig load_any_config(const std::string& path, std::optional<unsigned> rank = {},
                                        std::span<const std::string> settings = {});
[[nodiscard]] AnyConfig parse_any_config(std::string_view text, const std::string& name, const NodeChoice& choice = {});
[[nodiscard]] AnyConfig read_any_config(const ConfigTree& source, const NodeChoice& choice = {});

// All settings, defaults included, as a file that reads to the same AcceleratorConfig.
[[nodiscard]] std::string config_text(const AcceleratorConfig& config);

}  // namespace gradlane
