// common_sections.h - parts of a configuration file that both modes have (set-up only)
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "config/config.h"
#include "config/section.h"

namespace gradlane {

inline constexpr size_t kLongestPath = 4095;   // PATH_MAX, without the 0 at its end
inline constexpr size_t kLongestSocket = 107;  // sun_path, without the 0 at its end
inline constexpr size_t kLongestHost = 253;    // RFC 1035
inline constexpr unsigned kMaxCore = 1023;
inline constexpr unsigned kMaxUdpPort = 65535;
inline constexpr uint64_t kMiB = uint64_t{1} << 20;

// The text of a file, or more than kMaxConfigBytes of it. Throws SetupError; `what` it is, for that.
[[nodiscard]] std::string read_config_file(const std::string& path, const char* what = "configuration");

// Where the file says `mode: accelerator`; null: it does not, it is a node's or wrong.
[[nodiscard]] const YamlNode* accelerator_mode(const YamlNode& tree);

// Each sets what the file has, and leaves the rest.
//   `more`: what else is allowed, where all codecs are listed.
void read_codec(const Section& root, Codec& codec, const std::string& more = "");
void read_idle(const Section& worker, IdlePolicy& idle);
void read_user(const Section& root, std::string& user);
void read_log(const Section& root, std::string& log, std::string& file);

// The section `tos`: classes from `least` on, all different, without ECN bits.
struct TosClass {
  const char* key;
  uint8_t& value;
};
void read_tos(const Section& root, std::span<const TosClass> classes, unsigned least);

// The key of a port that says what device it is, and that sets kind and device of `port`. Nothing, after a fault, if
// there is none or several.
struct DeviceKey {
  const char* key;
  PortConfig::Kind kind;
};
[[nodiscard]] std::optional<Value> read_port_device(const Section& section, std::span<const DeviceKey> keys,
                                                    PortConfig& port);

// ---- The way back

// As YAML writes texts in double quotes. Those of a configuration have no control characters.
[[nodiscard]] std::string in_quotes(const std::string& text);
[[nodiscard]] std::string path_text(const std::string& path);   // the same; "" for "", which is left out
[[nodiscard]] std::string device_text(const PortConfig& port);  // "device: "net_tap0,...""

}  // namespace gradlane
