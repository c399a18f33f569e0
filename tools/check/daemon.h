// daemon.h - the daemon that `gradlane check` asks: one that runs, or one that it starts (main thread only)
#pragma once

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "config/config.h"
#include "tools/check/report.h"
#include "tools/run/child.h"

namespace gradlane {

// On this admin socket.
[[nodiscard]] bool somebody_listens(const std::string& path);

class CheckDaemon {
 public:
  // `rank`: of the command line.
  CheckDaemon(const NodeConfig& config, std::optional<unsigned> rank);
  // One that was started here is stopped by SIGTERM.
  ~CheckDaemon();
  CheckDaemon(const CheckDaemon&) = delete;
  CheckDaemon& operator=(const CheckDaemon&) = delete;

  // Somebody listens on config.admin already.
  [[nodiscard]] bool runs() const noexcept { return runs_; }
  // Starts gradlaned unless one runs, and waits until it can be asked. False: that failed, as the report says.
  [[nodiscard]] bool start(CheckReport& report);
  // Its answer to "stats" or "probe N". Throws SetupError.
  [[nodiscard]] nlohmann::json ask(const std::string& request, std::chrono::milliseconds patience);
  // Throws SetupError if a signal has come meanwhile that ends this process.
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
