// log_limiter.h - limits the lines that trainers can cause in the log (control thread; no clock)
#pragma once

#include <spdlog/common.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/time.h"

namespace gradlane {

// Logs kBurst lines of each kind at once, then one every kRefill. A kind with lines that were left out gets one line
// a minute, which says how many there were and repeats the latest.
class LogLimiter {
 public:
  using Level = spdlog::level::level_enum;
  using Sink = std::function<void(Level level, const std::string& text)>;

  static constexpr unsigned kBurst = 64;
  static constexpr Nanos kRefill = 10 * kSecond;
  static constexpr Nanos kTold = 60 * kSecond;
  static constexpr size_t kMostKinds = 64;  // further kinds count for the latest of these

  LogLimiter();  // logs by spdlog
  explicit LogLimiter(Sink sink) : sink_(std::move(sink)) {}

  // Sets the time, and logs how many lines were left out. Call it repeatedly, with times that never go backwards.
  void step(Nanos now);
  // Logs a line, or counts it. Lines that differ only in numbers are of one kind.
  void log(Level level, const std::string& text);
  // Logs or counts a line of a kind that the caller names.
  void log(Level level, std::string_view kind, const std::string& text);

 private:
  struct Kind {
    std::string name;
    unsigned lines = 0;     // logged lines that still count
    Nanos refilled_at = 0;  // when `lines` was lowered last, or went up from 0
    uint64_t left_out = 0;
    Nanos left_out_at = 0;  // time of the first line that was left out
    Level level = Level::info;
    std::string latest = {};  // latest line that was left out
  };
  Kind& kind_of(std::string_view name);

  Sink sink_;
  Nanos now_ = 0;
  std::vector<Kind> kinds_;  // kinds with lines that still count, or were left out
};

}  // namespace gradlane
