// section.cc - a checked view of a YAML tree: values of the right type and range, or a fault (set-up only)
#include "config/section.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "config/addresses.h"

namespace gradlane {
namespace {

using Kind = YamlNode::Kind;

constexpr size_t kLongestWord = 40;  // longest word that is compared with others

// Returns Levenshtein's distance.
size_t edits_between(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

const char* article_of(Kind kind) {
  switch (kind) {
    case Kind::kList:
      return "a list";
    case Kind::kMap:
      return "a map";
    default:
      return "nothing";
  }
}

bool is_control(char c) { return (c >= 0 && c < 0x20) || c == 0x7f; }

bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
}

std::string key_text(const std::string& key) {
  const bool plain = key.size() <= kLongestWord && !key.empty() && std::ranges::all_of(key, is_name);
  return plain ? key : quote_text(key);
}

}  // namespace

std::string guess(std::string_view word, std::span<const char* const> known) {
  if (word.empty() || word.size() > kLongestWord || known.empty()) return ",";
  const auto distance = [&](const char* other) { return edits_between(word, other); };
  const char* const nearest = *std::ranges::min_element(known, {}, distance);
  return distance(nearest) <= 1 + word.size() / 4 ? fmt::format(", did you mean '{}'?", nearest) : ",";
}

const std::string* Value::wrong_type(std::string_view wanted, std::string_view allowed) const {
  fault(fmt::format("{} where {} should be, allowed: {}", article_of(node_->kind), wanted, allowed));
  return nullptr;
}

const std::string* Value::scalar(std::string_view wanted, std::string_view allowed) const {
  return node_->kind == Kind::kScalar ? &node_->text : wrong_type(wanted, allowed);
}

std::optional<uint64_t> Value::whole(uint64_t least, uint64_t most) const {
  const std::string allowed = fmt::format("{} to {}", least, most);
  const std::string* const text = scalar("a whole number", allowed);
  if (text == nullptr) return std::nullopt;
  const auto number = parse_whole(*text);
  if (number && *number >= least && *number <= most) return number;
  fault(
      fmt::format("{} is {}, allowed: {}", quote_text(*text), number ? "out of range" : "not a whole number", allowed));
  return std::nullopt;
}

std::optional<uint64_t> Value::size(uint64_t least, uint64_t most) const {
  const std::string allowed =
      fmt::format("{} to {}, as in 512, 64KiB, 256MiB, 4GiB", size_text(least), size_text(most));
  const std::string* const text = scalar("a size", allowed);
  if (text == nullptr) return std::nullopt;
  const auto bytes = parse_size(*text);
  if (bytes && *bytes >= least && *bytes <= most) return bytes;
  fault(fmt::format("{} is {}, allowed: {}", quote_text(*text), bytes ? "out of range" : "not a size", allowed));
  return std::nullopt;
}

std::optional<Nanos> Value::duration(Nanos least, Nanos most) const {
  const std::string allowed =
      fmt::format("{} to {}, with a unit: us, ms, s, min, h", duration_text(least), duration_text(most));
  const std::string* const text = scalar("a duration", allowed);
  if (text == nullptr) return std::nullopt;
  const auto time = parse_duration(*text);
  if (time && *time >= least && *time <= most) return time;
  const bool unit_missing = !time && parse_whole(*text);
  const char* const wrong = time ? "out of range" : unit_missing ? "a duration without a unit" : "not a duration";
  fault(fmt::format("{} is {}, allowed: {}", quote_text(*text), wrong, allowed));
  return std::nullopt;
}

std::optional<double> Value::probability() const {
  static constexpr std::string_view kAllowed = "0 to 1, as in 1%, 0.1%, 0.01";
  const std::string* const text = scalar("a probability", kAllowed);
  if (text == nullptr) return std::nullopt;
  const auto probability = parse_probability(*text);
  if (!probability) fault(fmt::format("{} is not a probability, allowed: {}", quote_text(*text), kAllowed));
  return probability;
}

std::optional<double> Value::real(double least, double most) const {
  const std::string allowed = fmt::format("{} to {}", least, most);
  const std::string* const text = scalar("a number", allowed);
  if (text == nullptr) return std::nullopt;
  const auto number = parse_real(*text, least, most);
  if (!number) fault(fmt::format("{} is not a number in that range, allowed: {}", quote_text(*text), allowed));
  return number;
}

std::optional<bool> Value::flag() const {
  static constexpr const char* kFlags[] = {"false", "true"};
  const auto number = choice(kFlags);
  return number ? std::optional(*number == 1) : std::nullopt;
}

std::optional<size_t> Value::choice(std::span<const char* const> choices) const {
  const std::string allowed = fmt::format("{}", fmt::join(choices, ", "));
  const std::string* const text = scalar("one word", allowed);
  if (text == nullptr) return std::nullopt;
  const auto found = std::ranges::find(choices, *text);
  if (found != choices.end()) return static_cast<size_t>(found - choices.begin());
  fault(fmt::format("{} is unknown, allowed: {}", quote_text(*text), allowed));
  return std::nullopt;
}

std::optional<std::string> Value::text(size_t longest) const {
  const std::string allowed = fmt::format("1 to {} bytes", longest);
  const std::string* const text = scalar("a text", allowed);
  if (text == nullptr) return std::nullopt;
  if (std::ranges::any_of(*text, is_control)) {
    fault(fmt::format("{} has control characters in it, allowed: {} without any", quote_text(*text), allowed));
  } else if (text->empty() || text->size() > longest) {
    fault(fmt::format("{} has {} bytes, allowed: {}", quote_text(*text), text->size(), allowed));
  } else {
    return *text;
  }
  return std::nullopt;
}

std::optional<std::string> Value::name(size_t longest) const {
  const auto name = text(longest);
  if (!name || std::ranges::all_of(*name, is_name)) return name;
  fault(
      fmt::format("{} is not a name, allowed: 1 to {} letters, digits, '_', '-' and '.'", quote_text(*name), longest));
  return std::nullopt;
}

std::optional<IpAddress> Value::host_ip() const {
  const std::string* const text = scalar("an IP address", "the address of a host, as in 10.77.0.1 or fd00::1");
  if (text == nullptr) return std::nullopt;
  const bool of_ipv6 = text->find(':') != std::string::npos;
  const auto ip = parse_address(*text);
  if (ip && is_host(*ip)) return ip;
  const char* const wrong = text->find('%') != std::string::npos ? "a link-local address"
                            : ip                                 ? "not the address of a host"
                            : of_ipv6                            ? "not an IPv6 address"
                                                                 : "not an IPv4 address";
  fault(fmt::format("{} is {}, allowed: the address of a host, as in {}", quote_text(*text), wrong,
                    of_ipv6 ? "fd00::1" : "10.77.0.1"));
  return std::nullopt;
}

std::optional<IpPort> Value::ip_port() const {
  static constexpr std::string_view kAllowed =
      "ADDRESS:PORT, as in 127.0.0.1:9400 or \"[::1]:9400\"; node:PORT; or /PATH of a Unix socket";
  const std::string* const text = scalar("an address and a port", kAllowed);
  if (text == nullptr) return std::nullopt;
  const auto address = parse_ip_port(*text);
  if (!address) fault(fmt::format("{} is not an address with a port, allowed: {}", quote_text(*text), kAllowed));
  return address;
}

std::optional<MacAddress> Value::host_mac() const {
  static constexpr std::string_view kAllowed = "the address of a host, as in \"02:00:00:00:00:01\"";
  const std::string* const text = scalar("a MAC address", kAllowed);
  if (text == nullptr) return std::nullopt;
  const auto mac = parse_mac(*text);
  if (mac && *mac != MacAddress{} && ((*mac)[0] & 1) == 0) return mac;
  fault(fmt::format("{} is {}, allowed: {}", quote_text(*text), mac ? "not the address of a host" : "not a MAC address",
                    kAllowed));
  return std::nullopt;
}

std::optional<std::vector<Value>> Value::list(const char* of_what) const {
  if (node_->kind != Kind::kList) {
    const std::string found = node_->kind == Kind::kScalar ? quote_text(node_->text) : article_of(node_->kind);
    fault(fmt::format("{} where a list should be, allowed: [...] of {}", found, of_what));
    return std::nullopt;
  }
  std::vector<Value> values;
  for (const YamlNode& item : node_->items) {
    values.emplace_back(item, fmt::format("{}[{}]", path_, values.size()), *faults_);
  }
  return values;
}

Section::Section(const Value& value, std::span<const char* const> allowed, const KeysElsewhere& elsewhere)
    : value_(value) {
  const YamlNode& node = value.node();
  const std::string keys = fmt::format("{}", fmt::join(allowed, ", "));
  if (node.kind != Kind::kMap) {
    const std::string found = node.kind == Kind::kScalar ? quote_text(node.text) : article_of(node.kind);
    value.fault(fmt::format("{} where a map should be, allowed: keys {}", found, keys));
    return;
  }
  // Keys are sorted to find equal ones. So even a file that has only keys takes little time.
  std::vector<const YamlNode*> sorted;
  for (const YamlNode& key : node.keys) {
    sorted.push_back(&key);
    if (std::ranges::find(allowed, key.text) != allowed.end()) continue;
    const bool known = std::ranges::find(elsewhere.keys, key.text) != elsewhere.keys.end();
    const std::string why = known ? elsewhere.what + std::string(",") : "unknown key" + guess(key.text, allowed);
    value.faults().add(key.place, path_of(key_text(key.text)), fmt::format("{} allowed: {}", why, keys));
  }
  std::ranges::stable_sort(sorted, {}, [](const YamlNode* key) -> const std::string& { return key->text; });
  for (size_t i = 1; i < sorted.size(); ++i) {
    if (sorted[i]->text != sorted[i - 1]->text) continue;
    value.faults().add(sorted[i]->place, path_of(key_text(sorted[i]->text)),
                       fmt::format("given twice, first in line {}, allowed: once", sorted[i - 1]->place.line));
  }
}

std::string Section::path_of(std::string_view key) const {
  return fmt::format("{}{}{}", value_.path(), value_.path().empty() ? "" : ".", key);
}

std::optional<Value> Section::find(std::string_view key) const {
  const YamlNode& node = value_.node();
  const auto found = std::ranges::find(node.keys, key, &YamlNode::text);
  if (found == node.keys.end()) return std::nullopt;
  return Value(node.items[static_cast<size_t>(found - node.keys.begin())], path_of(key), value_.faults());
}

std::optional<Value> Section::need(std::string_view key) const {
  auto found = find(key);
  if (!found) missing(key, "is missing, and has no default");
  return found;
}

void Section::missing(std::string_view key, const std::string& what) const {
  value_.faults().add_missing(value_.node().place, path_of(key), what);
}

}  // namespace gradlane
