// watch.h - an accelerator's log lines and advice about its own state (control thread only)
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/time.h"
#include "config/accelerator.h"
#include "dataplane/accelerator/engine/accelerator.h"

namespace gradlane {

// A fault and its remedy.
struct AcceleratorAdvice {
  // "kernel", "offloads", "packets" or "peer"; for offloads and peers, gradlane check has its own lines
  const char* about;
  std::string text;
};

// Checks the engine's figures periodically, and advises what to do if something is wrong.
class AcceleratorWatch {
 public:
  static constexpr Nanos kAgain = kSecond;        // interval between log lines that say the same
  static constexpr Nanos kLately = 60 * kSecond;  // time after an event during which advice about it is given
  static constexpr Nanos kFigures = 5 * kSecond;  // interval between lines of figures, at level debug

  explicit AcceleratorWatch(const AcceleratorConfig& config) : config_(config) {}

  // Must be called every 100 ms. Times never go backwards.
  void look(const accel::Accelerator& engine, Nanos now);

  [[nodiscard]] std::vector<AcceleratorAdvice> advice(const accel::Accelerator& engine, Nanos now) const;

 private:
  // The count of an event that should not happen at all.
  struct Mishap {
    uint64_t count = 0;
    Nanos seen_at = 0;    // time at which the count last grew; 0: never
    uint64_t logged = 0;  // count when it was logged last
    Nanos logged_at = 0;
    [[nodiscard]] bool lately(Nanos now) const noexcept { return seen_at != 0 && now - seen_at < kLately; }
  };
  void look_at_peers(const accel::Accelerator& engine, Nanos now);
  void log_figures(const accel::Accelerator& engine) const;
  [[nodiscard]] std::string super_segments() const;
  [[nodiscard]] std::string unfinished() const;

  const AcceleratorConfig& config_;
  Mishap super_segments_;
  Mishap unfinished_;
  std::map<uint32_t, accel::Peers::State> peers_;  // state of each address that is known to the log, by IP address
  Nanos figures_at_ = 0;
};

}  // namespace gradlane
