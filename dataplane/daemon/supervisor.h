// supervisor.h - what systemd is told of this process: sd_notify(3)'s datagrams (control thread only)
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/file_descriptor.h"

namespace gradlane {

// The protocol is a promise of systemd's, and a few lines: too little for a library in every program. What cannot be
// told is in the log once, and stops nothing.
class Supervisor {
 public:
  using Clock = std::chrono::steady_clock;

  // As the environment has it: NOTIFY_SOCKET, without which nothing is told, and WATCHDOG_USEC, if WATCHDOG_PID is this
  // process. Connects at once: later the user may not be allowed to.
  Supervisor();

  // The start has gone well.
  void ready();
  // Every 100 ms or so, with how many rounds each worker has done. The watchdog is fed a few times in its interval, if
  // all of them have moved since it was fed last: a worker that hangs is in the log after half of it.
  void look(std::span<const uint64_t> rounds, Clock::time_point now = Clock::now());
  // What `systemctl status` shows; told when it is another one.
  void status(const std::string& text);
  // It ends; told once.
  void stopping();

 private:
  bool tell(const std::string& text);  // false: not now
  void complain(std::span<const uint64_t> rounds, Clock::duration since);

  FileDescriptor socket_;
  std::optional<Clock::duration> watchdog_;
  Clock::time_point fed_;
  std::vector<uint64_t> rounds_;  // as it was fed last
  std::string status_;
  bool told_ready_ = true;  // or it is not ready yet
  bool told_stopping_ = false;
  bool warned_ = false;
  bool complained_ = false;
};

}  // namespace gradlane
