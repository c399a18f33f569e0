// daemon.h - the daemon that `gradlane check` asks: one that already runs, or one that it starts (main thread only)
#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "config/config.h"
#include "tools/check/report.h"
#include "tools/run/child.h"

namespace gradlane {

// Returns whether a process listens on this admin socket, even if it is busy or does not admit this user.
[[nodiscard]] bool somebody_listens(const std::string& path);

class CheckDaemon {
 public:
  // `rank` is the one of the command line.
  CheckDaemon(const NodeConfig& config, std::optional<unsigned> rank);
  // Stops the daemon by SIGTERM if start() has started it, and by SIGKILL if that does not help.
  ~CheckDaemon();
  CheckDaemon(const CheckDaemon&) = delete;
  CheckDaemon& operator=(const CheckDaemon&) = delete;

  // Returns whether a process listened on config.admin when this object was made.
  [[nodiscard]] bool runs() const noexcept { return runs_; }
  // Starts gradlaned unless one runs, and waits until it can be asked. Returns false if that failed; the report has the
  // reason.
  [[nodiscard]] bool start(CheckReport& report);
  // Returns the daemon's answer to "stats" or "probe N". Throws SetupError.
  [[nodiscard]] nlohmann::json ask(const std::string& request, std::chrono::milliseconds patience);
  // Waits, and reads the log meanwhile. Throws SetupError if a signal comes that ends this process.
  void wait(std::chrono::milliseconds time);

 private:
  [[nodiscard]] bool wait_until_ready();
  void read_log();
  [[nodiscard]] bool ended();
  void tell_failure(CheckReport& report);
  void stop();

  const NodeConfig& config_;
  const std::optional<unsigned> rank_;
  SignalQueue signals_;
  bool runs_ = false;
  Child child_;
  bool ended_ = false;
  int status_ = 0;
  std::string log_;
};

}  // namespace gradlane
