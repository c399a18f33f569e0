// before.h - what the wire's interface was like before `gradlane accelerator up` (main thread only)
#pragma once

#include <cstddef>
#include <optional>
#include <set>
#include <string>

namespace gradlane {

// It is written to the alias of the host port's interface: so it is there as long as what was set up, and no longer.
struct WireBefore {
  std::string interface;
  size_t mtu = 0;
  bool ipv6 = false;  // the kernel spoke it there
  bool promiscuous = false;
  std::set<std::string> features;  // those that were on, and had to go off

  [[nodiscard]] std::string text() const;
  // Nothing: that is none.
  [[nodiscard]] static std::optional<WireBefore> parse(const std::string& text);
};

}  // namespace gradlane
