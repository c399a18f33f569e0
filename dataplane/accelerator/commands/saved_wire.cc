// saved_wire.cc - the state of the wire's interface before `gradlane accelerator up` (main thread only)
#include "dataplane/accelerator/commands/saved_wire.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <sstream>

#include "base/parse.h"

namespace gradlane {
namespace {

constexpr const char* kMark = "gradlane";

// Returns "1500" for the word "mtu=1500" and the key "mtu", and nothing for another key.
std::optional<std::string> value_of(const std::string& word, const std::string& key) {
  if (!word.starts_with(key + "=")) return std::nullopt;
  return word.substr(key.size() + 1);
}

}  // namespace

std::string SavedWire::text() const {
  return fmt::format("{} {} mtu={} ipv6={:d} promisc={:d} features={}", kMark, interface, mtu, ipv6, promiscuous,
                     fmt::join(features, ","));
}

std::optional<SavedWire> SavedWire::parse(const std::string& text) {
  std::istringstream words(text);
  std::string mark;
  SavedWire before;
  if (!(words >> mark >> before.interface) || mark != kMark) return std::nullopt;
  for (std::string word; words >> word;) {
    if (const auto mtu = value_of(word, "mtu")) before.mtu = parse_decimal(*mtu).value_or(before.mtu);
    if (const auto ipv6 = value_of(word, "ipv6")) before.ipv6 = *ipv6 == "1";
    if (const auto promiscuous = value_of(word, "promisc")) before.promiscuous = *promiscuous == "1";
    const auto features = value_of(word, "features");
    std::istringstream names(features.value_or(""));
    for (std::string name; std::getline(names, name, ',');) before.features.insert(name);
  }
  if (before.mtu == 0) return std::nullopt;
  return before;
}

}  // namespace gradlane
