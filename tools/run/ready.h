// ready.h - whether a daemon that `gradlane run` has started is ready
#pragma once

#include <string>

namespace gradlane {

// Of the trainers' socket, which a daemon makes last: it takes connections.
[[nodiscard]] bool takes_trainers(const std::string& path);

// Of an admin socket, which is there before the daemon is ready: it answers. Never waits.
class AdminProbe {
 public:
  AdminProbe() = default;
  ~AdminProbe();
  AdminProbe(const AdminProbe&) = delete;
  AdminProbe& operator=(const AdminProbe&) = delete;

  // Called again until it is true; then the next path may come.
  [[nodiscard]] bool answers(const std::string& path);

 private:
  void hang_up();

  int fd_ = -1;  // of a question that has not been answered yet
};

}  // namespace gradlane
