// yaml_tree.h - a YAML document as a tree in which everything knows its place (set-up only)
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "config/faults.h"

namespace gradlane {

inline constexpr size_t kMaxConfigBytes = size_t{1} << 20;
inline constexpr size_t kMaxConfigDepth = 8;  // lists and maps within each other; twice what any setting needs

struct YamlNode {
  enum class Kind { kNull, kScalar, kList, kMap };
  Kind kind = Kind::kNull;
  Place place;                  // of a null that belongs to a key: the key's
  std::string text;             // of a scalar, without its quotes
  std::vector<YamlNode> keys;   // of a map: scalars, in the order of the file; some may be equal
  std::vector<YamlNode> items;  // of a list; of a map: the values, one per key
};

// What a configuration is read from: a file, words of the command line, or a file that some words override.
struct ConfigTree {
  YamlNode root;
  std::string name;                // of the file, for messages; or what stands for it
  std::vector<std::string> words;  // that places of line 0 lead to
};

// Reads the one document of a text. Aliases, tags and keys that are lists or maps are refused: a configuration needs
// none of them. Throws SetupError for the first thing that is wrong, "file:line:column: ...".
[[nodiscard]] YamlNode parse_yaml(std::string_view text, const std::string& file);

}  // namespace gradlane
