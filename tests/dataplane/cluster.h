// cluster.h - nodes of a ring in one process, on in-process links, whose workers the test steps with a time of its own
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

// What DPDK says when a device is taken out of the machine.
void take_out(const std::string& device);

// Node 1 of a ring of two, played by the test: the other end of node 0's link, frame by frame.
class Peer {
 public:
  Peer(RingLinks& links, const std::string& link, unsigned lanes);
  ~Peer();
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  void send(const Bytes& frame, unsigned queue = 0);
  // A frame whose bytes lie in two buffers.
  void send_in_two(const Bytes& frame);
  // What has come; none: nothing has.
  [[nodiscard]] std::optional<Bytes> receive(unsigned queue = 0);

 private:
  [[nodiscard]] rte_mbuf* buffer_with(const Bytes& frame);

  PacketPool pool_;
  RingLinks::End end_;
};

// All buffers of a node's pool that are free, until they are given back.
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
  bool played = false;  // node 1 of two is a Peer
  const char* strategies = "ring";
  // Two that are not beside each other, of four or more: the test can cut their link.
  std::optional<std::pair<unsigned, unsigned>> cuttable = std::nullopt;
  // Of each node's configuration, what is not as below: raw codec, one lane.
  std::function<void(NodeConfig&)> change = nullptr;
};

// Nodes are 10.0.0.1, 10.0.0.2, ..., with MAC addresses 02:00:00:00:00:0a, ...0b, ... Node i has port "next" to i + 1
// and port "previous" to i - 1, in a ring of two one port "next" for both, and port "to5" to node 5 if a strategy needs
// it.
class Cluster final : public TrainerHost {
 public:
  explicit Cluster(const ClusterConfig& config = {});
  // Trainers must be gone.
  ~Cluster() override;
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  [[nodiscard]] Node& node(unsigned node) { return *nodes_[node]; }
  [[nodiscard]] std::span<const std::unique_ptr<Node>> nodes() const { return nodes_; }
  [[nodiscard]] Peer& peer() { return *peer_; }

  // Never backwards.
  void set_now(Nanos now) { now_ = now; }
  [[nodiscard]] Nanos now() const { return now_; }
  // A round of each of the node's workers, now, as its threads would do it; true if anything moved.
  bool round(unsigned node);
  // A round of each node, after which 1 us has passed.
  void step();
  // Whether the link that can be cut loses all from now on.
  void cut(bool all) { cut_ = all; }
  // Whether it has no rounds from now on, as if its process had died or been stopped.
  void stop(unsigned node, bool stopped) { stopped_[node] = stopped; }
  void run_for(Nanos time);
  [[nodiscard]] bool run_until(const std::function<bool()>& is_so, Nanos time = kSecond) override;
  // All ranks have met.
  [[nodiscard]] bool whole() const;

  // What has been counted by that name, by all queues of a node.
  [[nodiscard]] uint64_t counted(unsigned node, const std::string& name) const;
  // The same of one queue of its first port.
  [[nodiscard]] uint64_t counted(unsigned node, unsigned queue, const std::string& name) const;

  // ---- TrainerHost
  [[nodiscard]] unsigned lanes() const override { return nodes_[0]->config().lanes; }
  [[nodiscard]] unsigned trainers() const override { return nodes_[0]->config().trainers; }
  [[nodiscard]] LaneDesk& desk_of(unsigned node, unsigned trainer, unsigned lane) override;

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
  // Of the link that can be cut: what its nodes have the other ends of.
  std::vector<RingLinks::End> middle_;
  bool cut_ = false;
};

}  // namespace gradlane::test
