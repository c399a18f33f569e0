// saved_wire.h - the state of the wire's interface before `gradlane accelerator up` (main thread only)
#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <string>

namespace gradlane {

// The state of the wire's interface, which is stored in the alias of the host port's interface. So it exists exactly as
// long as the set-up does.
struct SavedWire {
  std::string interface;
  size_t mtu = 0;
  bool ipv6 = false;  // whether the kernel used IPv6 there
  bool promiscuous = false;
  std::set<std::string> features;  // ethtool features that were on, and that `up` had to switch off

  [[nodiscard]] std::string text() const;
  // Returns nothing if `text` is not such a state.
  [[nodiscard]] static std::optional<SavedWire> parse(const std::string& text);
};

}  // namespace gradlane
