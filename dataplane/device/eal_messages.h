// eal_messages.h - what DPDK says while it starts (control thread, at the start)
#pragma once

#include <string>

namespace gradlane {

// As long as it lives, DPDK's messages go to stderr, and errors among them are kept. One at a time.
class EalMessages {
 public:
  EalMessages() noexcept;
  ~EalMessages();
  EalMessages(const EalMessages&) = delete;
  EalMessages& operator=(const EalMessages&) = delete;

  // The first ones, "; " between them.
  [[nodiscard]] std::string errors() const;
};

}  // namespace gradlane
