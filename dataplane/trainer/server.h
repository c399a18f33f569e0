// server.h - the Unix socket of a node: trainers connect, get shared memory, and disconnect (control thread only)
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

// The lanes that a node's server sends commands to.
struct ServerLanes {
  unsigned lanes = 1;
  std::vector<int> doorbells;  // trainers' end of the bell of each lane's worker
  // Channels for commands: channels[lane * trainers + trainer] is for this trainer. With local_reduce, all trainers
  // share one channel on each lane.
  std::vector<ControlChannel*> channels;
  PacketRoom packets = {};
  std::function<unsigned()> mbps = {};  // rate of the slowest port in Mb/s; 0: not known
};

class ServerState;

// The server of a node. It owns the listening socket, connections, and all memory shared with trainers. It never
// blocks. The control thread calls step() when fd() is readable, and in any case every 10 ms while busy(), every 100 ms
// otherwise.
class Server {
 public:
  // Throws SetupError if the path is too long, another daemon listens there, or permission is missing. Replaces a stale
  // socket file. The mode of the file is 0660.
  Server(const NodeConfig& config, ServerLanes lanes);
  // Removes the socket file. All trainers must be gone; see finished().
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Lets trainers connect. Everything that they need must be ready.
  void open();

  [[nodiscard]] int fd() const noexcept;  // epoll instance, for poll() or another epoll
  void step(Nanos now);
  [[nodiscard]] bool busy() const noexcept;  // whether a session has something to do without a message

  // Stops accepting trainers. Disconnects the connected ones, which receive `text`. Releases the memory of each as soon
  // as no lane touches it.
  void close(const std::string& text, Nanos now);
  [[nodiscard]] bool finished() const noexcept;

  [[nodiscard]] unsigned attached() const noexcept;  // number of attached trainers
  // Returns the reports of all attached trainers on the choices of `auto`.
  [[nodiscard]] std::vector<SessionReports> reports() const;

 private:
  std::unique_ptr<ServerState> state_;
};

}  // namespace gradlane
