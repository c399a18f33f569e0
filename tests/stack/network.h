// network.h - a switch with a cable to each host, frame by frame, at times that the test passes in
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <span>
#include <string>
#include <vector>

#include "base/fault_dice.h"
#include "base/time.h"
#include "dataplane/device/packet_pool.h"

struct rte_mbuf;
struct rte_ring;

namespace gradlane::test {

using Bytes = std::vector<uint8_t>;

// Hosts are numbered. A host is a node with a DPDK device (plug()), or the test itself (send(), take()). The switch
// learns where MAC addresses are, and sends everywhere what is for all or for an unknown one.
class Network {
 public:
  // False: the frame gets lost. It may be written to.
  using Filter = std::function<bool(unsigned from, unsigned to, std::span<uint8_t> frame)>;

  static constexpr Nanos kLatency = 5 * kMicrosecond;  // from a host to another one

  Network(unsigned hosts, uint16_t udp_port, uint64_t seed);
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  // Devargs of a new device of that host's, for a node with so many queues and ranks.
  [[nodiscard]] std::string plug(unsigned host, unsigned queues, unsigned ranks_per_node);
  // Of a node that has closed it. What was on its way to it is lost.
  void unplug(unsigned host);

  // Takes what hosts have sent, and hands out what is due. True: there was something.
  bool step(Nanos now);
  // When the next frame is due.
  [[nodiscard]] Nanos next() const { return due_.empty() ? kNever : due_.top().at; }
  // Whether the host's device has something that it has not looked at.
  [[nodiscard]] bool waits(unsigned host) const;

  // ---- What can be wrong
  // Cables. `noticed`: at the host's end, so that its device says so.
  void set_cable(unsigned host, bool up, bool noticed);
  // The device says so again, after its node has started it.
  void show_cable(unsigned host) const;
  // Hosts of different groups do not hear each other; by host.
  void part(std::vector<unsigned> groups) { groups_ = std::move(groups); }
  void heal() { groups_.assign(hosts_.size(), 0); }
  // What goes from one to the other, and in this direction only, gets lost.
  void cut(unsigned from, unsigned to, bool lost) { cut_[from * hosts_.size() + to] = lost; }
  // What happens to frames by chance: `reorder` makes one up to ten latencies late, `delay` up to a hundred, `corrupt`
  // changes a bit.
  void set_faults(const FaultChances& faults) { faults_ = faults; }
  void set_filter(Filter filter) { filter_ = std::move(filter); }
  // Bits per second of each cable, each way; 0: no limit.
  void set_rate(uint64_t bits) { rate_ = bits; }

  // ---- The test's frames
  void send(unsigned host, const Bytes& frame);
  // What comes to a host without a device from now on is kept for take().
  void listen(unsigned host) { hosts_[host].listens = true; }
  [[nodiscard]] std::optional<Bytes> take(unsigned host);
  // Copies of what comes to a host from now on, at most so many; 0: no more.
  void record(unsigned host, size_t most);
  [[nodiscard]] std::vector<Bytes> recorded() { return std::move(recorded_); }

  // Frames of one host that have got to another one.
  [[nodiscard]] uint64_t carried() const { return carried_; }
  // Buffers of frames that nobody has now, of all.
  [[nodiscard]] size_t free_buffers() const;

 private:
  struct Host {
    std::string device;  // none: the test has it
    unsigned ranks_per_node = 1;
    std::vector<rte_ring*> rx;  // by queue, as the node sees them
    std::vector<rte_ring*> tx;
    bool up = true;
    bool noticed = true;
    bool listens = false;
    Nanos sent_at = 0;                                 // its cable is busy until then
    Nanos heard_at = 0;                                // the same of the other way
    std::deque<std::pair<size_t, rte_mbuf*>> backlog;  // of queues that are full
    std::deque<Bytes> frames;
  };
  struct Due {
    Nanos at;
    uint64_t number;
    unsigned from;
    unsigned to;
    rte_mbuf* mbuf;
    bool operator<(const Due& other) const { return at != other.at ? at > other.at : number > other.number; }
  };

  void forward(unsigned from, std::span<const uint8_t> frame, Nanos now);
  void carry(unsigned from, unsigned to, std::span<const uint8_t> frame, Nanos now);
  void hand_out(const Due& due);
  void hand_out_backlog(Host& host);
  [[nodiscard]] Nanos busy_until(Nanos& cable, size_t bytes, Nanos now) const;
  [[nodiscard]] rte_mbuf* copy(std::span<const uint8_t> frame);

  const uint16_t udp_port_;
  PacketPool pool_;
  std::vector<Host> hosts_;
  std::vector<unsigned> groups_;
  std::vector<bool> cut_;
  std::map<uint64_t, unsigned> learnt_;  // by MAC address
  std::priority_queue<Due> due_;
  std::vector<std::pair<unsigned, Bytes>> sent_;  // by the test
  FaultDice dice_;
  FaultChances faults_;
  Filter filter_;
  uint64_t rate_ = 0;
  uint64_t numbered_ = 0;
  uint64_t carried_ = 0;
  unsigned recorded_host_ = 0;
  size_t record_left_ = 0;
  std::vector<Bytes> recorded_;
};

}  // namespace gradlane::test
