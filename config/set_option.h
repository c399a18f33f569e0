// set_option.h - settings of the command line, KEY=VALUE, which are put into the tree of a configuration (set-up only)
#pragma once

#include <span>
#include <string>

#include "config/yaml_tree.h"

namespace gradlane {

// Sets or overrides settings: "timeouts.peer=5s", "ports[0].mac=02:00:00:00:00:01", "tos={raw: 0x24}". The value is
// YAML. If a key is set several times, the last one counts. The reader of the tree checks keys and values later. It
// reports a fault as one of "--set timeouts.peer=5s". Throws SetupError for a text that is no setting, or whose path
// leads into a value without keys.
void apply_settings(ConfigTree& tree, std::span<const std::string> settings);

// Adds a word of the command line, and returns the place that refers to it.
[[nodiscard]] Place add_word(ConfigTree& tree, const std::string& word);

// Make a scalar or a map with that place, add a key to a map, and find the value of a key. find_key() returns null if
// there is none.
[[nodiscard]] YamlNode scalar_at(Place place, const std::string& text);
[[nodiscard]] YamlNode map_at(Place place);
YamlNode& add_key(YamlNode& map, Place place, const std::string& key, YamlNode value);
[[nodiscard]] const YamlNode* find_key(const YamlNode& map, const std::string& key);

// Parses `text` as YAML, and sets the place of all its nodes to `place`. Throws SetupError, "WORD: not YAML: ...".
[[nodiscard]] YamlNode yaml_at(const std::string& text, const std::string& word, Place place);

}  // namespace gradlane
