// node.h - a node: ports, lanes, workers, and the server that its trainers connect to (control thread only)
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/time.h"
#include "config/config.h"
#include "dataplane/device/packet_pool.h"
#include "dataplane/device/port.h"
#include "dataplane/device/ring_links.h"
#include "dataplane/frame/frame.h"
#include "dataplane/lane/address_claim.h"
#include "dataplane/lane/lane.h"
#include "dataplane/lane/port_queue.h"
#include "dataplane/lane/worker.h"
#include "dataplane/node/node_trace.h"
#include "dataplane/node/pair_keys.h"
#include "dataplane/trainer/choice_reports.h"
#include "dataplane/trainer/log_limiter.h"
#include "dataplane/trainer/mailbox.h"
#include "dataplane/trainer/server.h"
#include "dataplane/watch/admin_socket.h"
#include "dataplane/watch/failed_operations.h"
#include "dataplane/watch/metrics_server.h"
#include "dataplane/watch/path_watch.h"
#include "dataplane/watch/prober.h"
#include "dataplane/watch/ring_watch.h"

namespace gradlane {

// A port of a node. Lanes share its queues if there are more lanes than queues.
struct NodePort {
  // Events about the port's address that have been logged.
  struct AddressLog {
    uint64_t conflicts = 0;
    uint64_t asked = 0;
    Nanos conflict_at = 0;  // time of the latest conflict; 0: none
    Nanos log_at = 0;       // earliest time of the next log line
  };
  std::unique_ptr<Port> port;
  std::unique_ptr<AddressClaim> claim;
  AddressLog address_log;
  std::vector<std::unique_ptr<PortQueue>> queues;
  bool wrong_lanes_logged = false;
};

class Node {
 public:
  // Makes everything and starts nothing. `index` must differ between nodes of one process. `pairs`: keys in place of
  // those in auth.key_file.
  Node(const NodeConfig& config, RingLinks& links, unsigned index, const PairKeys* pairs = nullptr);
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  // Returns the memory that EAL must have for a node's packets.
  [[nodiscard]] static size_t packet_bytes(const NodeConfig& config);

  void start(Nanos now);
  // Returns whether all ports that are up know if the address is this node's or another host's. Called again and again
  // after start().
  [[nodiscard]] bool addresses_settled();
  // Throws SetupError if the address is another host's; the text names that host.
  void check_addresses() const;
  // Lets trainers connect.
  void open();
  // Starts ports that could not start yet, and logs what has happened in the ring. Called every 100 ms.
  void maintain(Nanos now);

  [[nodiscard]] Server& server() const noexcept { return *server_; }
  [[nodiscard]] const NodeConfig& config() const noexcept { return config_; }
  [[nodiscard]] std::vector<std::string> files() const;  // files that it makes; some may not exist
  // operations in flight; one that is on several lanes counts for each lane
  [[nodiscard]] uint32_t in_flight() const noexcept;
  // With local_reduce, returns how long operations of this node have waited for this trainer, as the mean of all lanes.
  [[nodiscard]] Nanos awaited(unsigned trainer) const noexcept;
  // Returns the number of unacknowledged packets to ranks that are up, as of about 100 ms ago. Operations of trainers
  // may be over before their last packets are acknowledged.
  [[nodiscard]] size_t unacknowledged() const noexcept;

  [[nodiscard]] std::span<const NodePort> ports() const noexcept { return ports_; }
  [[nodiscard]] std::span<const std::unique_ptr<PacketPool>> pools() const noexcept { return pools_; }
  [[nodiscard]] std::span<const std::unique_ptr<Neighbour>> neighbours() const noexcept { return neighbours_; }
  [[nodiscard]] const RingWatch& ring() const noexcept { return ring_; }     // as of the latest maintain()
  [[nodiscard]] std::optional<double> failed_ago(Nanos now) const noexcept;  // seconds since the last failure

  // Sets the socket for requests of people and tools. admin() is null before that.
  void set_admin(std::unique_ptr<AdminSocket> admin) noexcept { admin_ = std::move(admin); }
  [[nodiscard]] AdminSocket* admin() const noexcept { return admin_.get(); }

  // Sets the server that Prometheus asks. metrics() is null if there is none.
  void set_metrics(std::unique_ptr<MetricsServer> metrics) noexcept { metrics_ = std::move(metrics); }
  [[nodiscard]] MetricsServer* metrics() const noexcept { return metrics_.get(); }

  // workers() is for callers that run the rounds of workers themselves instead of calling start(). channel() is the
  // control channel that takes commands for a lane.
  [[nodiscard]] std::span<const std::unique_ptr<Worker>> workers() const noexcept { return workers_; }
  [[nodiscard]] ControlChannel& channel(unsigned number, unsigned local) noexcept {
    return *desks_[number * ranks_per_node(config_) + local];
  }

  // Keys of neighbours. rotate_key() begins to make `key` the newest one, and accepts the one before it for `old_for`.
  // If `key` is the newest one already, only changes that time. Throws SetupError if it cannot.
  void rotate_key(const RingKey& key, Nanos old_for, Nanos now);
  // Returns whether rotate_key() has begun and the key is not in use yet. This takes a few ms.
  [[nodiscard]] bool rotating(Nanos now);
  struct KeyFigures {
    uint16_t newest = 0;
    std::optional<uint16_t> old;
    Nanos old_for = 0;                // time for which the old key is still accepted
    std::vector<unsigned> waits_for;  // nodes that may not have the newest key, as of about 100 ms ago
  };
  // Returns nothing without a key of all nodes.
  [[nodiscard]] std::optional<KeyFigures> key_figures(Nanos now) const;
  // Returns whether this node has a key of its own for each other node. Such keys do not change.
  [[nodiscard]] bool has_pair_keys() const noexcept { return !pair_keys_.empty(); }

  // Probing examines the paths to neighbours. start_probing() does nothing while a run is under way.
  void start_probing(Nanos most, Nanos now);
  void step_probing(Nanos now);  // every few ms while probing()
  [[nodiscard]] bool probing() const noexcept { return prober_->running() || paths_->running(); }
  [[nodiscard]] const Prober& prober() const noexcept { return *prober_; }

  [[nodiscard]] NodeTrace& trace() noexcept { return trace_; }

  // Calls visit(queue, its number) for each queue, or visit(lane, its number) for each lane. `visit` may use only what
  // other threads may read.
  template <class Visit>
  void for_each_queue(Visit visit) const {
    for (const NodePort& it : ports_) {
      for (unsigned i = 0; i < it.queues.size(); ++i) visit(*it.queues[i], i);
    }
  }
  template <class Visit>
  void for_each_lane(Visit visit) const {
    for (size_t i = 0; i < lanes_.size(); ++i) {
      visit(*lanes_[i], static_cast<unsigned>(i / ranks_per_node(config_)));
    }
  }

  // ---- The end: call these in this order, with some time in between.
  // Fails all operations in flight; the other ranks learn of it. `why` is the reason that trainers here receive; it
  // must stay valid. Null: the daemon is shutting down.
  void post_close(const char* why);
  [[nodiscard]] bool closed() const noexcept;  // whether all lanes have executed the command of post_close()
  void stop_workers();                         // also publishes their last figures
  void say_goodbye();                          // on links that need it, after stop_workers()
  void abandon_memory() noexcept;              // leaves packet buffers to the end of the process

 private:
  void make_lanes();
  void make_ports(RingLinks& links, unsigned index);
  void make_neighbours();
  void claim_address();
  void log_addresses(Nanos now);
  void read_keys(const PairKeys* pairs);
  void connect_ports();
  void connect_lane(unsigned number, unsigned local);
  // ---- node_keys.cc
  void step_keys(Nanos now);
  void drop_old_key();
  [[nodiscard]] std::vector<unsigned> nodes_without(uint16_t key) const;
  void make_prober();
  void make_server();
  void agree_on_workers();
  void log_numa() const;
  void look_for_wrong_lanes();
  void log_ring(Nanos now);
  void log_failures(Nanos now);
  void log_choices(Nanos now);
  void log_faults(Nanos now);
  [[nodiscard]] Lane& lane(unsigned number, unsigned local) {
    return *lanes_[number * ranks_per_node(config_) + local];
  }
  [[nodiscard]] Neighbour* neighbour(unsigned node) noexcept;
  [[nodiscard]] const KeyRing* keys_of(unsigned node) const noexcept;
  [[nodiscard]] Worker& worker_of(unsigned number) { return *workers_[number % workers_.size()]; }
  [[nodiscard]] PortQueue& queue_to(unsigned node, unsigned number);

  const NodeConfig config_;
  const Classifier classifier_;
  const uint64_t incarnation_;
  std::unique_ptr<KeyRing> keys_;                    // of all nodes; null if there is none
  std::vector<std::unique_ptr<KeyRing>> pair_keys_;  // by node; empty if keys_ serves all
  // A change of keys.
  struct KeyChange {
    std::optional<RingKey> next;  // becomes the newest key as soon as no worker uses the one that was dropped
    Nanos next_old_for = 0;
    Nanos old_until = kNever;      // when the old key is dropped
    std::vector<uint64_t> rounds;  // of workers when an old key was dropped; empty: nothing was dropped
  };
  KeyChange key_change_;
  std::vector<std::unique_ptr<Neighbour>> neighbours_;  // nodes that lanes exchange packets with
  std::vector<std::unique_ptr<PacketPool>> pools_;      // one pool for all lanes
  std::vector<NodePort> ports_;
  std::vector<std::unique_ptr<ControlChannel>> desks_;  // in the order of lanes_
  std::vector<std::unique_ptr<ScanBarrier>> looks_;     // barriers by rank of this node; empty with one lane
  // Lanes write to the logs of this object, so it must outlive the lanes.
  NodeTrace trace_;
  std::vector<std::unique_ptr<Lane>> lanes_;  // index: number * ranks_per_node + local rank
  RingWatch ring_;
  LogLimiter limiter_;  // of lines about failures and choices, which trainers can cause
  FailureLog failures_;
  ReportWatch choices_;
  Nanos faults_logged_at_ = 0;
  std::unique_ptr<Prober> prober_;
  std::unique_ptr<PathWatch> paths_;
  std::vector<std::unique_ptr<Worker>> workers_;
  std::vector<std::unique_ptr<Command>> closing_;
  std::unique_ptr<Server> server_;
  std::unique_ptr<AdminSocket> admin_;
  std::unique_ptr<MetricsServer> metrics_;
};

}  // namespace gradlane
