// common_sections.h - the parts of a configuration file that both modes have (set-up only)
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

// Returns the text of a file, or its first kMaxConfigBytes + 1 bytes if it is longer. Throws SetupError; `what` names
// the kind of file in its message.
[[nodiscard]] std::string read_config_file(const std::string& path, const char* what = "configuration");

// Returns the value in `mode: accelerator`. Returns null if the file has no such line: it is a node's file, or wrong.
[[nodiscard]] const YamlNode* accelerator_mode(const YamlNode& tree);

// Each of these sets the values that the file has, and leaves the others unchanged.
//   `more` describes other allowed values, for a message that lists all codecs.
void read_codec(const Section& root, Codec& codec, const std::string& more = "");
void read_idle(const Section& worker, IdlePolicy& idle);
void read_user(const Section& root, std::string& user);
void read_log(const Section& root, std::string& log, std::string& file);

// A class of the section `tos`. read_tos() checks that classes are `least` or more, all different, and without ECN
// bits.
struct TosClass {
  const char* key;
  uint8_t& value;
};
void read_tos(const Section& root, std::span<const TosClass> classes, unsigned least);

// A key of a port that names its device. read_port_device() sets kind and device of `port`, and returns the value of
// the key. If there is no such key or several, it records a fault and returns nothing.
struct DeviceKey {
  const char* key;
  PortConfig::Kind kind;
};
[[nodiscard]] std::optional<Value> read_port_device(const Section& section, std::span<const DeviceKey> keys,
                                                    PortConfig& port);

// ---- Writing of files

// Returns a text in double quotes, as YAML writes it. Texts of a configuration have no control characters.
[[nodiscard]] std::string in_quotes(const std::string& text);
// Returns the path in double quotes, or "" if it is empty, because the file then leaves it out.
[[nodiscard]] std::string path_text(const std::string& path);
[[nodiscard]] std::string device_text(const PortConfig& port);  // "device: "net_tap0,...""

}  // namespace gradlane
