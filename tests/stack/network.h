// network.h - a switch with a cable to each host, which forwards frames at times that the test passes in
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

// Hosts have numbers from 0. A host is a node with a DPDK device (plug()), or the test itself (send(), take()). The
// switch learns MAC addresses, and floods broadcasts and frames to unknown addresses.
class Network {
 public:
  // A filter may change the frame. It returns false to drop it.
  using Filter = std::function<bool(unsigned from, unsigned to, std::span<uint8_t> frame)>;

  static constexpr Nanos kLatency = 5 * kMicrosecond;  // time from a host to another one

  Network(unsigned hosts, uint16_t udp_port, uint64_t seed);
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  // Gives the host a DPDK device, and returns its devargs. `queues` and `ranks_per_node` are those of its node: they
  // map UDP ports to queues.
  [[nodiscard]] std::string plug(unsigned host, unsigned queues, unsigned ranks_per_node);
  // Removes the device, which its node has closed, and drops the frames in transit from and to it.
  void unplug(unsigned host);

  // Forwards the frames that hosts have sent, and delivers the frames that are due. Returns whether there were any.
  bool step(Nanos now);
  // Returns when the next frame is due, or kNever.
  [[nodiscard]] Nanos next() const { return due_.empty() ? kNever : due_.top().at; }
  // Returns whether the host's device has frames that its node has not read.
  [[nodiscard]] bool has_frames(unsigned host) const;

  // ---- Faults
  // Plugs or unplugs a cable. `noticed`: true if it is at the host's end, so that the host's device reports the change;
  // false if it is at the switch's end.
  void set_cable(unsigned host, bool up, bool noticed);
  // Sets the device's link state again. Call it after a node has started the device.
  void apply_link_state(unsigned host) const;
  // Partitions the network: groups[host] is the group of a host, and frames pass only within a group.
  void partition(std::vector<unsigned> groups) { groups_ = std::move(groups); }
  void heal() { groups_.assign(hosts_.size(), 0); }
  // Drops all frames from `from` to `to` while `lost` is true; the other direction works.
  void set_blocked(unsigned from, unsigned to, bool lost) { cut_[from * hosts_.size() + to] = lost; }
  // Random faults: `reorder` delays a frame by up to 10 latencies, `delay` by up to 100, `corrupt` flips a bit.
  void set_faults(const FaultChances& faults) { faults_ = faults; }
  void set_filter(Filter filter) { filter_ = std::move(filter); }
  // Sets the bits per second of each cable, in each direction; 0: no limit.
  void set_rate(uint64_t bits) { rate_ = bits; }

  // ---- Frames that the test sends and receives
  void send(unsigned host, const Bytes& frame);
  // Makes take() return the frames that reach this host from now on. The host must not have a device.
  void listen(unsigned host) { hosts_[host].listens = true; }
  [[nodiscard]] std::optional<Bytes> take(unsigned host);
  // Records copies of the next `most` frames that reach `host`; 0: stops recording.
  void record(unsigned host, size_t most);
  [[nodiscard]] std::vector<Bytes> recorded() { return std::move(recorded_); }

  // Returns the number of frames that were delivered.
  [[nodiscard]] uint64_t carried() const { return carried_; }
  // Returns the number of free packet buffers in the network's pool.
  [[nodiscard]] size_t free_buffers() const;

 private:
  struct Host {
    std::string device;  // empty if the test itself sends and receives for the host
    unsigned ranks_per_node = 1;
    std::vector<rte_ring*> rx;  // rings by queue, as the node sees them
    std::vector<rte_ring*> tx;
    bool up = true;
    bool noticed = true;
    bool listens = false;
    Nanos tx_busy_until = 0;  // time at which its latest frame has left its cable to the switch
    Nanos rx_busy_until = 0;  // time at which the cable from the switch has carried its latest frame
    // frames that wait because their queue is full, each with its queue
    std::deque<std::pair<size_t, rte_mbuf*>> backlog;
    std::deque<Bytes> frames;
  };
  struct ScheduledFrame {
    Nanos at;
    uint64_t number;
    unsigned from;
    unsigned to;
    rte_mbuf* mbuf;
    bool operator<(const ScheduledFrame& other) const { return at != other.at ? at > other.at : number > other.number; }
  };

  void forward(unsigned from, std::span<const uint8_t> frame, Nanos now);
  void carry(unsigned from, unsigned to, std::span<const uint8_t> frame, Nanos now);
  void hand_out(const ScheduledFrame& due);
  void hand_out_backlog(Host& host);
  [[nodiscard]] Nanos busy_until(Nanos& cable, size_t bytes, Nanos now) const;
  [[nodiscard]] rte_mbuf* copy(std::span<const uint8_t> frame);

  const uint16_t udp_port_;
  PacketPool pool_;
  std::vector<Host> hosts_;
  std::vector<unsigned> groups_;
  std::vector<bool> cut_;
  std::map<uint64_t, unsigned> learnt_;  // host by MAC address
  std::priority_queue<ScheduledFrame> due_;
  std::vector<std::pair<unsigned, Bytes>> sent_;  // host and frame, from the test
  FaultDice dice_;
  FaultChances faults_;
  Filter filter_;
  uint64_t rate_ = 0;
  uint64_t next_number_ = 0;
  uint64_t carried_ = 0;
  unsigned recorded_host_ = 0;
  size_t record_left_ = 0;
  std::vector<Bytes> recorded_;
};

}  // namespace gradlane::test
