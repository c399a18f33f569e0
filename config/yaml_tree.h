// yaml_tree.h - a YAML document as a tree whose nodes have their places in the file (set-up only)
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "config/faults.h"

namespace gradlane {

inline constexpr size_t kMaxConfigBytes = size_t{1} << 20;
inline constexpr size_t kMaxConfigDepth = 8;  // most levels of nested lists and maps; twice what any setting needs

struct YamlNode {
  enum class Kind { kNull, kScalar, kList, kMap };
  Kind kind = Kind::kNull;
  Place place;                  // place in the file; for a null that belongs to a key, place of the key
  std::string text;             // text of a scalar, without its quotes
  std::vector<YamlNode> keys;   // keys of a map: scalars, in the order of the file; some may be equal
  std::vector<YamlNode> items;  // items of a list; values of a map, one per key
};

// The source of a configuration: a file, words of the command line, or a file that some words override.
struct ConfigTree {
  YamlNode root;
  std::string name;                // name of the file, or text that stands for it, for messages
  std::vector<std::string> words;  // words that places of line 0 refer to
};

// Reads the one document of a text. It refuses aliases, tags, and keys that are lists or maps: a configuration needs
// none of them. Throws SetupError for the first fault, "file:line:column: ...".
[[nodiscard]] YamlNode parse_yaml(std::string_view text, const std::string& file);

}  // namespace gradlane
