// ready.h - tests whether a daemon that `gradlane run` has started is ready (main thread only)
#pragma once

#include <string>

namespace gradlane {

// Returns whether the trainers' socket takes connections. A daemon makes that socket last.
[[nodiscard]] bool takes_trainers(const std::string& path);

// Tests whether a daemon answers at its admin socket, which exists before the daemon is ready. It never waits.
class AdminProbe {
 public:
  AdminProbe() = default;
  ~AdminProbe();
  AdminProbe(const AdminProbe&) = delete;
  AdminProbe& operator=(const AdminProbe&) = delete;

  // Returns whether the daemon has answered. The caller repeats the call with the same path until it returns true.
  [[nodiscard]] bool answers(const std::string& path);

 private:
  void hang_up();

  int fd_ = -1;  // connection with an unanswered request; -1: none
};

}  // namespace gradlane
