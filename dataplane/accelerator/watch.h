// watch.h - what an accelerator says of itself: lines of the log, and advice (control thread only)
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
  const char* about;  // "kernel", "offloads", "packets" or "peer": gradlane check has its own lines for two of them
  std::string text;
};

// Looks at the engine's figures again and again, and says what to do where something is wrong.
class AcceleratorWatch {
 public:
  static constexpr Nanos kAgain = kSecond;        // between lines that say the same
  static constexpr Nanos kLately = 60 * kSecond;  // so long something that has happened is worth advice
  static constexpr Nanos kFigures = 5 * kSecond;  // between lines of figures, at level debug

  explicit AcceleratorWatch(const AcceleratorConfig& config) : config_(config) {}

  // Every 100 ms. Times never go backwards.
  void look(const accel::Accelerator& engine, Nanos now);

  [[nodiscard]] std::vector<AcceleratorAdvice> advice(const accel::Accelerator& engine, Nanos now) const;

 private:
  // Something that should not happen at all.
  struct Mishap {
    uint64_t count = 0;
    Nanos seen_at = 0;    // when it became more; 0: never
    uint64_t logged = 0;  // of the count
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
  std::map<uint32_t, accel::Peers::State> peers_;  // so the log says
  Nanos figures_at_ = 0;
};

}  // namespace gradlane
