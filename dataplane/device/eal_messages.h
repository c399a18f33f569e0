// eal_messages.h - a record of DPDK's error messages while it starts (control thread, at the start)
#pragma once

#include <string>

namespace gradlane {

// While an object of this class lives, DPDK's messages go to stderr, and the errors among them are kept. Only one
// object may exist at a time.
class EalMessages {
 public:
  EalMessages() noexcept;
  ~EalMessages();
  EalMessages(const EalMessages&) = delete;
  EalMessages& operator=(const EalMessages&) = delete;

  // Returns the first errors, separated by "; ".
  [[nodiscard]] std::string errors() const;
};

}  // namespace gradlane
