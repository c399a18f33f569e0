// server.h - the Unix socket of a node: trainers come, get shared memory, and go (control thread only)
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/time.h"
#include "config/config.h"
#include "dataplane/trainer/control_tables.h"
#include "dataplane/trainer/mailbox.h"
#include "dataplane/trainer/session_slots.h"

namespace gradlane {

// What a node's server talks to.
struct ServerLanes {
  unsigned lanes = 1;
  std::vector<int> doorbells;  // trainers' end of the bell of each lane's worker
  // desks[lane * trainers + trainer]: where commands about this trainer go. With local_reduce the trainers of a lane
  // share a desk.
  std::vector<LaneDesk*> desks;
  PacketRoom packets = {};
  std::function<unsigned()> mbps = {};  // of the slowest port; 0: not known
};

class ServerState;

// Owns the listening socket, connections, and all memory shared with trainers. Never blocks. The owner runs step() when
// fd() is readable, and in any case every 10 ms while busy(), every 100 ms otherwise.
class Server {
 public:
  // Throws SetupError: the path is too long, another daemon listens there, no permission. A stale socket file is
  // replaced. The mode of the file is 0660.
  Server(const NodeConfig& config, ServerLanes lanes);
  // Removes the socket file. All trainers must be gone; see finished().
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // From now on trainers can connect: everything they need is there.
  void open();

  [[nodiscard]] int fd() const noexcept;  // an epoll instance: for poll() or another epoll
  void step(Nanos now);
  [[nodiscard]] bool busy() const noexcept;  // commands are under way

  // Takes no trainers any more; says goodbye to those that are here with this text, and lets go of their memory once no
  // lane touches it.
  void close(const std::string& text, Nanos now);
  [[nodiscard]] bool finished() const noexcept;

  [[nodiscard]] unsigned attached() const noexcept;  // trainers
  // What the libraries of those that are here say of operations that were left to them.
  [[nodiscard]] std::vector<SessionReports> reports() const;

 private:
  std::unique_ptr<ServerState> state_;
};

}  // namespace gradlane
