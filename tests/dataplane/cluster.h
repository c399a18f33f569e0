// cluster.h - nodes of a ring in one process, on in-process links; the test steps their workers in virtual time
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/time.h"
#include "config/config.h"
#include "dataplane/device/packet_pool.h"
#include "dataplane/device/ring_links.h"
#include "dataplane/node/node.h"
#include "tests/dataplane/test_eal.h"
#include "tests/dataplane/trainer/trainer_fixture.h"

struct rte_mbuf;

namespace gradlane::test {

using Bytes = std::vector<uint8_t>;

// Reports the removal of a device from the machine, as DPDK does it.
void take_out(const std::string& device);

// Node 1 of a ring of two, played by the test. It sends and receives single frames at the other end of node 0's link.
class Peer {
 public:
  Peer(RingLinks& links, const std::string& link, unsigned lanes);
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  void send(const Bytes& frame, unsigned queue = 0);
  // Sends a frame whose bytes lie in two buffers.
  void send_in_two(const Bytes& frame);
  // Returns the next frame that has arrived; std::nullopt if there is none.
  [[nodiscard]] std::optional<Bytes> receive(unsigned queue = 0);

 private:
  [[nodiscard]] rte_mbuf* buffer_with(const Bytes& frame);

  PacketPool pool_;
  RingLinks::End end_;
};

// Takes all free buffers of a node's pool, until they are given back.
class Hoard {
 public:
  explicit Hoard(const Node& node);
  ~Hoard() { give_back(); }
  Hoard(const Hoard&) = delete;
  Hoard& operator=(const Hoard&) = delete;
  [[nodiscard]] size_t buffers() const { return buffers_.size(); }
  void give_back();

 private:
  std::vector<rte_mbuf*> buffers_;
};

struct ClusterConfig {
  unsigned nodes = 2;
  bool played = false;  // whether node 1 of two is a Peer
  const char* strategies = "ring";
  // Two nodes of four or more that are not neighbours in the ring. The test can cut the link between them.
  std::optional<std::pair<unsigned, unsigned>> cuttable = std::nullopt;
  // Changes the configuration of each node, which otherwise has the raw codec and one lane.
  std::function<void(NodeConfig&)> change = nullptr;
};

// Nodes have the addresses 10.0.0.1, 10.0.0.2, ... and the MAC addresses 02:00:00:00:00:0a, ...0b, ... Port "next" of
// node i leads to i + 1, and port "previous" to i - 1. In a ring of two, one port "next" is both. If a strategy needs a
// link to node 5, there is also a port "to5".
class Cluster final : public TrainerHost {
 public:
  explicit Cluster(const ClusterConfig& config = {});
  // All trainers must have been destroyed before.
  ~Cluster() override;
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  [[nodiscard]] Node& node(unsigned node) { return *nodes_[node]; }
  [[nodiscard]] std::span<const std::unique_ptr<Node>> nodes() const { return nodes_; }
  [[nodiscard]] Peer& peer() { return *peer_; }

  // Sets the time, which must not go backwards.
  void set_now(Nanos now) { now_ = now; }
  [[nodiscard]] Nanos now() const { return now_; }
  // Runs a round of each of the node's workers at the current time, as its threads would do. Returns true if anything
  // moved.
  bool round(unsigned node);
  // Runs a round of each node that is not stopped, then advances the time by 1 us.
  void step();
  // Sets whether the link that can be cut loses all packets from now on.
  void cut(bool all) { cut_ = all; }
  // Sets whether the node has no rounds from now on, as if its process had died or been stopped.
  void stop(unsigned node, bool stopped) { stopped_[node] = stopped; }
  void run_for(Nanos time);
  [[nodiscard]] bool run_until(const std::function<bool()>& is_so, Nanos time = kSecond) override;
  // Returns whether the ring is ready on all lanes of all nodes.
  [[nodiscard]] bool ready() const;

  // Returns the value of the counter with that name, summed over all queues of a node.
  [[nodiscard]] uint64_t counted(unsigned node, const std::string& name) const;
  // Returns the value of the counter with that name of one queue of the node's first port.
  [[nodiscard]] uint64_t counted(unsigned node, unsigned queue, const std::string& name) const;

  // ---- TrainerHost
  [[nodiscard]] unsigned lanes() const override { return nodes_[0]->config().lanes; }
  [[nodiscard]] unsigned trainers() const override { return nodes_[0]->config().trainers; }
  [[nodiscard]] ControlChannel& desk_of(unsigned node, unsigned trainer, unsigned lane) override;

 private:
  [[nodiscard]] NodeConfig config_of(unsigned rank) const;
  [[nodiscard]] std::string link_between(unsigned rank, unsigned other) const;
  void carry();

  const ClusterConfig config_;
  std::filesystem::path folder_;
  Nanos now_ = kSecond;
  RingLinks links_;
  std::unique_ptr<Peer> peer_;
  std::vector<std::unique_ptr<Node>> nodes_;
  std::vector<bool> stopped_;
  // The ends in the middle of the link that can be cut, one for each of its two nodes. carry() moves packets between
  // them.
  std::vector<RingLinks::End> middle_;
  bool cut_ = false;
};

}  // namespace gradlane::test
