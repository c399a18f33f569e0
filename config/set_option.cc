// set_option.cc - settings of the command line, KEY=VALUE, which are put into the tree of a configuration (set-up only)
#include "config/set_option.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "base/parse.h"

namespace gradlane {
namespace {

using Kind = YamlNode::Kind;

constexpr const char* kSettingAllowed = "allowed: KEY=VALUE, as in timeouts.peer=5s";

// A part of a path such as "ports[0].mac": a key, and the indices of list items that follow it.
struct Step {
  std::string key;
  std::vector<size_t> items;
};

// Parses "ports[0]". Returns nothing if the text has another form.
std::optional<Step> step_of(std::string_view text) {
  const size_t bracket = text.find('[');
  Step step{std::string(text.substr(0, bracket)), {}};
  if (step.key.empty()) return std::nullopt;
  text.remove_prefix(step.key.size());
  while (!text.empty()) {
    if (text.front() != '[') return std::nullopt;
    text.remove_prefix(1);
    const auto item = take_decimal(text);
    if (!item || !text.starts_with(']')) return std::nullopt;
    text.remove_prefix(1);
    step.items.push_back(*item);
  }
  return step;
}

std::vector<Step> steps_of(std::string_view path, const std::string& word) {
  std::vector<Step> steps;
  for (bool more = true; more;) {
    const size_t dot = path.find('.');
    auto step = step_of(path.substr(0, dot));
    if (!step) refuse_word(word, fmt::format("no key in front of the '=', {}", kSettingAllowed));
    steps.push_back(std::move(*step));
    more = dot != std::string_view::npos;
    if (more) path.remove_prefix(dot + 1);
  }
  return steps;
}

void move_to(YamlNode& node, Place place) {
  node.place = place;
  for (YamlNode& it : node.keys) move_to(it, place);
  for (YamlNode& it : node.items) move_to(it, place);
}

// Walks the tree, and makes the keys that are missing.
class Walk {
 public:
  Walk(ConfigTree& tree, const std::string& word, Place place) : node_(&tree.root), word_(word), place_(place) {}

  void go(const Step& step) {
    if (node_->kind == Kind::kNull) *node_ = map_at(place_);
    if (node_->kind != Kind::kMap) refuse("has no keys");
    path_ += (path_.empty() ? "" : ".") + step.key;
    const YamlNode* const found = find_key(*node_, step.key);
    node_ = found != nullptr ? &node_->items[static_cast<size_t>(found - node_->items.data())]
                             : &add_key(*node_, place_, step.key, {Kind::kNull, place_, {}, {}, {}});
    for (const size_t item : step.items) {
      if (node_->kind != Kind::kList) refuse("is not a list");
      if (item >= node_->items.size()) refuse(fmt::format("has {} items, counted from 0", node_->items.size()));
      node_ = &node_->items[item];
      path_ += fmt::format("[{}]", item);
    }
  }

  void set(YamlNode value) { *node_ = std::move(value); }

 private:
  [[noreturn]] void refuse(const std::string& why) const {
    refuse_word(word_, fmt::format("{} {}", path_.empty() ? "the configuration" : path_, why));
  }

  YamlNode* node_;
  std::string path_;
  const std::string& word_;
  Place place_;
};

// Returns a setting as it stands on the command line. It is between quotes if it does not fit into a message.
std::string word_of(const std::string& setting) {
  const std::string safe = quote_text(setting);
  return "--set " + (safe == "'" + setting + "'" && setting.find(' ') == std::string::npos ? setting : safe);
}

}  // namespace

void apply_settings(ConfigTree& tree, std::span<const std::string> settings) {
  for (const std::string& setting : settings) {
    const std::string word = word_of(setting);
    const size_t equals = setting.find('=');
    if (equals == std::string::npos) refuse_word(word, fmt::format("there is no '=' in it, {}", kSettingAllowed));
    const Place place = add_word(tree, word);
    const std::vector<Step> steps = steps_of(std::string_view(setting).substr(0, equals), word);
    if (steps.size() >= kMaxConfigDepth) refuse_word(word, fmt::format("too many keys, {}", kSettingAllowed));
    Walk walk(tree, word, place);
    for (const Step& step : steps) walk.go(step);
    walk.set(yaml_at(setting.substr(equals + 1), word, place));
  }
}

Place add_word(ConfigTree& tree, const std::string& word) {
  tree.words.push_back(word);
  return {0, static_cast<unsigned>(tree.words.size() - 1)};
}

YamlNode scalar_at(Place place, const std::string& text) { return {Kind::kScalar, place, text, {}, {}}; }

YamlNode map_at(Place place) { return {Kind::kMap, place, {}, {}, {}}; }

YamlNode& add_key(YamlNode& map, Place place, const std::string& key, YamlNode value) {
  map.keys.push_back(scalar_at(place, key));
  return map.items.emplace_back(std::move(value));
}

const YamlNode* find_key(const YamlNode& map, const std::string& key) {
  const auto found = std::ranges::find(map.keys, key, &YamlNode::text);
  return found == map.keys.end() ? nullptr : &map.items[static_cast<size_t>(found - map.keys.begin())];
}

YamlNode yaml_at(const std::string& text, const std::string& word, Place place) {
  YamlNode node = parse_yaml(text, word);
  move_to(node, place);
  return node;
}

}  // namespace gradlane
