// error.h - the one exception type of set-up code; packet paths never throw
#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace gradlane {

// The causes of a SetupError that programs tell apart.
enum class SetupFault : uint8_t {
  kOther,
  kPortInUse,    // another process has a UDP port
  kUnknownName,  // what() ends with the list of valid names, one per line
};

// An input of the user cannot be used. what() says what is wrong, where, and what is allowed.
class SetupError : public std::runtime_error {
 public:
  explicit SetupError(const std::string& text, SetupFault fault = SetupFault::kOther)
      : std::runtime_error(text), fault_(fault) {}

  [[nodiscard]] SetupFault fault() const noexcept { return fault_; }

 private:
  SetupFault fault_;
};

}  // namespace gradlane
