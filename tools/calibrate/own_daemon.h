// own_daemon.h - a gradlaned that runs for the time of a measurement (main thread only)
#pragma once

#include <sys/types.h>

#include <string>

namespace gradlane {

class OwnDaemon {
 public:
  // Starts the node of this machine in a ring of `hosts`, the list of gradlaned --nodes. `rank` is that of gradlaned;
  // "": it follows from the list. Waits until trainers can connect. Throws SetupError if the daemon does not start.
  OwnDaemon(const std::string& hosts, const std::string& rank);
  // Ends the daemon. It also ends if this process is killed.
  ~OwnDaemon();
  OwnDaemon(const OwnDaemon&) = delete;
  OwnDaemon& operator=(const OwnDaemon&) = delete;

  // Returns the path of the trainers' socket.
  [[nodiscard]] const std::string& socket() const noexcept { return socket_; }

 private:
  [[nodiscard]] bool ended();
  void wait_until_ready();
  void stop();

  std::string folder_;
  std::string socket_;
  std::string log_;
  pid_t pid_ = -1;  // -1: it has ended
  int status_ = 0;
};

}  // namespace gradlane
