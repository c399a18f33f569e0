// set_option.h - settings of the command line, KEY=VALUE, in the tree of a configuration (set-up only)
#pragma once

#include <span>
#include <string>

#include "config/yaml_tree.h"

namespace gradlane {

// Sets or overrides what each says: "timeouts.peer=5s", "ports[0].mac=02:00:00:00:00:01", "tos={raw: 0x24}". The value
// is YAML. The last one of a key counts. Whether there is such a key, and whether the value is right, is left to
// whoever reads the tree, and told as a fault of "--set timeouts.peer=5s". Throws SetupError for what is no setting, or
// leads into something that has no keys.
void apply_settings(ConfigTree& tree, std::span<const std::string> settings);

// A new word of the command line, and the place that leads to it.
[[nodiscard]] Place add_word(ConfigTree& tree, const std::string& word);

// A scalar and a map of that place, and what is added to a map.
[[nodiscard]] YamlNode scalar_at(Place place, const std::string& text);
[[nodiscard]] YamlNode map_at(Place place);
YamlNode& add_key(YamlNode& map, Place place, const std::string& key, YamlNode value);
[[nodiscard]] const YamlNode* find_key(const YamlNode& map, const std::string& key);

// What `text` means in YAML, all of it at that place. Throws SetupError, "WORD: not YAML: ...".
[[nodiscard]] YamlNode yaml_at(const std::string& text, const std::string& word, Place place);

}  // namespace gradlane
