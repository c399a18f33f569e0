// eal_messages.h - what DPDK says while it starts (control thread, at the start)
#pragma once

#include <cstdio>
#include <string>

namespace gradlane {

// As long as it lives, DPDK's messages go to stderr, and errors among them are kept.
class EalMessages {
 public:
  EalMessages() noexcept;
  ~EalMessages();
  EalMessages(const EalMessages&) = delete;
  EalMessages& operator=(const EalMessages&) = delete;

  // The first ones, "; " between them.
  [[nodiscard]] const std::string& errors() const noexcept { return errors_; }

 private:
  static ssize_t take(void* self, const char* text, size_t bytes);

  std::FILE* stream_;
  std::string errors_;
};

}  // namespace gradlane
