// error.h - the one exception type of set-up code; packet paths never throw
#pragma once

#include <stdexcept>
#include <string>

namespace gradlane {

// Something the user gave cannot be used. what() says what was wrong, where, and what is allowed.
class SetupError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

}  // namespace gradlane
