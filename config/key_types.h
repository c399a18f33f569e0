// key_types.h - rows of configuration keys, which serve the reader, config_text() and docs/configuration.md (set-up
// only)
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/time.h"
#include "config/accelerator.h"
#include "config/config.h"
#include "config/section.h"
#include "config/values.h"

namespace gradlane {

// Values of ConfigKey::same: whether all nodes of a ring must have the same value.
inline constexpr const char* kAnyNode = "no";
inline constexpr const char* kSameOnAll = "checked";  // neighbours compare it

// A key of a file that is read to a Config. The functions below make such keys.
template <class Config>
struct ConfigKey {
  const char* section;  // "timeouts" for timeouts.peer; "" for the file itself; "nodes[]" for each entry of a list
  const char* name;
  void (*read)(const Section&, const char* name, Config&) = nullptr;  // null: other code reads it
  // text of the value as in a file, "" to leave the key out; null if the text of another key includes it
  std::string (*text)(const Config&) = nullptr;
  std::string allowed{};   // this and the next fields are for docs/configuration.md, in Markdown
  std::string standard{};  // default
  const char* same;
  const char* meaning;
  const char* type;  // kind of value: "number", "size", "list", ..., as docs/configuration.md explains them

  // ---- Changes to keys for which the functions below do not derive the right texts from the type.
  [[nodiscard]] ConfigKey with_default(const char* what) && {
    standard = what;
    return std::move(*this);
  }
  [[nodiscard]] ConfigKey with_allowed(const char* what) && {
    allowed = what;
    return std::move(*this);
  }
};

// Returns the member that a path of members leads to: a member of `config`, a member of that member, and so on.
template <auto kFirst, auto... kRest, class Config>
[[nodiscard]] auto& member(Config& config) noexcept {
  if constexpr (sizeof...(kRest) == 0) {
    return config.*kFirst;
  } else {
    return member<kRest...>(config.*kFirst);
  }
}

// ---- Keys by type. `kPath` leads to the member that is read, see member(). Values may be from kLeast to kMost, both
// included.

template <class Config, uint64_t kLeast, uint64_t kMost, auto... kPath>
[[nodiscard]] ConfigKey<Config> whole_key(const char* section, const char* name, const char* same,
                                          const char* meaning) {
  const auto text = [](const Config& of) { return fmt::format("{}", member<kPath...>(of)); };
  return {section,
          name,
          [](const Section& in, const char* key, Config& to) { in.whole(key, member<kPath...>(to), kLeast, kMost); },
          text,
          fmt::format("{} to {}", kLeast, kMost),
          text(Config{}),
          same,
          meaning,
          "number"};
}

template <class Config, uint64_t kLeast, uint64_t kMost, auto... kPath>
[[nodiscard]] ConfigKey<Config> size_key(const char* section, const char* name, const char* same, const char* meaning) {
  const auto text = [](const Config& of) { return size_text(member<kPath...>(of)); };
  return {section,
          name,
          [](const Section& in, const char* key, Config& to) { in.size(key, member<kPath...>(to), kLeast, kMost); },
          text,
          fmt::format("{} to {}", size_text(kLeast), size_text(kMost)),
          fmt::format("`{}`", text(Config{})),
          same,
          meaning,
          "size"};
}

template <class Config, Nanos kLeast, Nanos kMost, auto... kPath>
[[nodiscard]] ConfigKey<Config> duration_key(const char* section, const char* name, const char* same,
                                             const char* meaning) {
  const auto text = [](const Config& of) { return duration_text(member<kPath...>(of)); };
  return {section,
          name,
          [](const Section& in, const char* key, Config& to) { in.duration(key, member<kPath...>(to), kLeast, kMost); },
          text,
          fmt::format("{} to {}", duration_text(kLeast), duration_text(kMost)),
          fmt::format("`{}`", text(Config{})),
          same,
          meaning,
          "duration"};
}

template <class Config, auto... kPath>
[[nodiscard]] ConfigKey<Config> probability_key(const char* section, const char* name, const char* same,
                                                const char* meaning) {
  const auto text = [](const Config& of) { return probability_text(member<kPath...>(of)); };
  return {section,
          name,
          [](const Section& in, const char* key, Config& to) { in.probability(key, member<kPath...>(to)); },
          text,
          "0 to 1, or 0% to 100%",
          text(Config{}),
          same,
          meaning,
          "probability"};
}

template <class Config, auto... kPath>
[[nodiscard]] ConfigKey<Config> flag_key(const char* section, const char* name, const char* same, const char* meaning) {
  const auto text = [](const Config& of) { return fmt::format("{}", member<kPath...>(of)); };
  return {section,
          name,
          [](const Section& in, const char* key, Config& to) { in.flag(key, member<kPath...>(to)); },
          text,
          "`true`, `false`",
          fmt::format("`{}`", text(Config{})),
          same,
          meaning,
          "flag"};
}

// Makes a key that other code reads.
template <class Config>
[[nodiscard]] ConfigKey<Config> other_key(const char* type, const char* section, const char* name,
                                          std::string (*text)(const Config&), const char* standard, const char* allowed,
                                          const char* same, const char* meaning) {
  return {section, name, nullptr, text, allowed, standard, same, meaning, type};
}

// Makes the key of a ToS class, in the section `tos`.
template <class Config, auto... kPath>
[[nodiscard]] ConfigKey<Config> tos_key(const char* name, const char* same, const char* allowed, const char* meaning) {
  const auto text = [](const Config& of) { return fmt::format("{:#04x}", member<kPath...>(of)); };
  return {"tos", name, nullptr, text, allowed, fmt::format("`{}`", text(Config{})), same, meaning, "number"};
}

// Makes the keys of the section `faults`.
template <class Config>
[[nodiscard]] std::vector<ConfigKey<Config>> fault_keys() {
  using Faults = InjectedFaults;
  constexpr auto kFaults = &Config::faults;
  const char* const in = "faults";
  return {
      probability_key<Config, kFaults, &Faults::drop>(
          in, "drop", kAnyNode, "share of received frames that are dropped, see [Faults](#faults)"),
      probability_key<Config, kFaults, &Faults::duplicate>(in, "duplicate", kAnyNode,
                                                           "share of received frames that arrive twice"),
      probability_key<Config, kFaults, &Faults::reorder>(
          in, "reorder", kAnyNode, "share of received frames that arrive after up to 8 later ones"),
      probability_key<Config, kFaults, &Faults::corrupt>(in, "corrupt", kAnyNode,
                                                         "share of received frames with one bit changed"),
      probability_key<Config, kFaults, &Faults::delay>(in, "delay", kAnyNode,
                                                       "share of received frames that arrive `faults.delay_time` late"),
      duration_key<Config, 10 * kMicrosecond, kSecond, kFaults, &Faults::delay_time>(
          in, "delay_time", kAnyNode, "how late the frames of `faults.delay` arrive"),
      whole_key<Config, 0, UINT64_MAX, kFaults, &Faults::seed>(in, "seed", kAnyNode,
                                                               "seed of the random choice of frames")
          .with_allowed("0 to 2^64 - 1"),
  };
}

// ---- Functions of all keys

// Returns the names of a section's keys. The keys of the file ("") include its sections.
template <class Config>
[[nodiscard]] std::vector<const char*> names_in(std::span<const ConfigKey<Config>> keys, std::string_view section) {
  std::vector<const char*> names;
  for (const ConfigKey<Config>& key : keys) {
    const bool is_section = section.empty() && key.section != section && !std::string_view(key.section).ends_with("[]");
    const std::string_view name = is_section ? key.section : key.name;
    if (!is_section && key.section != section) continue;
    if (names.empty() || names.back() != name) names.push_back(name.data());
  }
  return names;
}

// Reads the keys of a section whose `read` is not null, and sets their members.
template <class Config>
void read_keys(std::span<const ConfigKey<Config>> keys, std::string_view name, const Section& section, Config& config) {
  for (const ConfigKey<Config>& key : keys) {
    if (key.section == name && key.read != nullptr) key.read(section, key.name, config);
  }
}

// Finds a section of the file and reads its keys with read_keys(). Returns the section, or nothing if the file does not
// have it.
template <class Config>
std::optional<Section> read_section(std::span<const ConfigKey<Config>> keys, const Section& root, const char* name,
                                    Config& config) {
  const auto value = root.find(name);
  if (!value) return std::nullopt;
  const Section section(*value, names_in(keys, name));
  read_keys(keys, name, section, config);
  return section;
}

// Returns all values as a file.
template <class Config>
[[nodiscard]] std::string text_of(std::span<const ConfigKey<Config>> keys, const Config& config) {
  std::string text;
  std::string entries;  // entries of the section
  for (size_t i = 0; i < keys.size(); ++i) {
    const ConfigKey<Config>& key = keys[i];
    const std::string value = key.text == nullptr ? "" : key.text(config);
    if (!value.empty()) {
      const char* const gap = value.front() == '\n' ? "" : " ";
      if (*key.section == 0) {
        text += fmt::format("{}:{}{}\n", key.name, gap, value);
      } else {
        entries += fmt::format("{}{}: {}", entries.empty() ? "" : ", ", key.name, value);
      }
    }
    const bool is_last = i + 1 == keys.size() || keys[i + 1].section != std::string_view(key.section);
    if (is_last && !entries.empty()) text += fmt::format("{}: {{{}}}\n", key.section, std::exchange(entries, ""));
  }
  return text;
}

// Return the keys of a node's file and of an accelerator's, in the order of docs/configuration.md.
[[nodiscard]] std::span<const ConfigKey<NodeConfig>> node_keys();
[[nodiscard]] std::span<const ConfigKey<AcceleratorConfig>> accelerator_keys();

}  // namespace gradlane
