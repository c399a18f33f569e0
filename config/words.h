// words.h - words of the configuration file that stand for values (set-up only)
#pragma once

namespace gradlane {

inline constexpr const char* kModeWords[] = {"node", "accelerator"};
inline constexpr const char* kAutoWord = "auto";  // rank that gradlaned finds itself
inline constexpr const char* kAnyWord = "any";    // sockets at any address of the machine
inline constexpr const char* kSecurityWords[] = {"none", "authenticated", "encrypted", "encrypted-128"};  // by Security
inline constexpr const char* kIdleWords[] = {"spin", "yield", "adaptive"};  // by IdlePolicy
inline constexpr const char* kLogWords[] = {"trace", "debug", "info", "warn", "error"};

}  // namespace gradlane
