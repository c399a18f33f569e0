// supervisor.h - notifications to systemd, as datagrams of sd_notify(3) (control thread only)
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/file_descriptor.h"

namespace gradlane {

// Notifies systemd about this process. systemd promises that the protocol is stable. It takes a few lines, so no
// program needs to link a library for it. A failure to send is logged once and has no other effect.
class Supervisor {
 public:
  using Clock = std::chrono::steady_clock;

  // Reads the environment: NOTIFY_SOCKET, and WATCHDOG_USEC if WATCHDOG_PID is this process or is not set. Nothing is
  // sent without NOTIFY_SOCKET. Connects at once, because the user may not be allowed to later.
  Supervisor();

  // Reports that the start is complete.
  void ready();
  // Takes the number of rounds that each worker has done. Call it about every 100 ms. Notifies the watchdog at most
  // four times per interval, and only if every worker has done rounds since the last notification. Logs a worker that
  // hangs after half of the interval.
  void look(std::span<const uint64_t> rounds, Clock::time_point now = Clock::now());
  // Sets the text that `systemctl status` shows. Sends it only if it has changed.
  void status(const std::string& text);
  // Reports that the process is ending. Sends it once.
  void stopping();

 private:
  bool tell(const std::string& text);  // false: it could not be sent now
  void complain(std::span<const uint64_t> rounds, Clock::duration since);

  FileDescriptor socket_;
  std::optional<Clock::duration> watchdog_;
  Clock::time_point fed_;
  std::vector<uint64_t> rounds_;  // rounds at the last notification of the watchdog
  std::string status_;
  bool told_ready_ = true;  // also true while the process is not ready yet
  bool told_stopping_ = false;
  bool warned_ = false;
  bool complained_ = false;
};

}  // namespace gradlane
