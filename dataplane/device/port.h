// port.h - the interface through which a node sends and receives frames, with a queue pair for each lane (control
// thread; bursts: worker threads)
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/time.h"
#include "config/config.h"
#include "dataplane/device/packet_pool.h"
#include "dataplane/device/port_kinds.h"
#include "dataplane/device/steering.h"

struct rte_mbuf;

namespace gradlane {

// The interface or card under a port is gone. A new process can use the one that is there then.
class DeviceLost : public SetupError {
 public:
  using SetupError::SetupError;
};
// Exit status of a daemon that ends because of DeviceLost.
inline constexpr int kDeviceLostStatus = 3;

class Port {
 public:
  virtual ~Port();
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] const std::string& device() const noexcept { return config_.device; }
  [[nodiscard]] unsigned queues() const noexcept { return queues_; }
  [[nodiscard]] const MacAddress& mac() const noexcept { return mac_; }
  [[nodiscard]] const std::vector<unsigned>& nodes() const noexcept { return config_.nodes; }
  // Returns whether the receiver gets the very buffer that was sent, and may write to it. If so, workers send copies
  // only.
  [[nodiscard]] bool shares_buffers() const noexcept { return traits_.shares_buffers; }
  // Returns whether the link is memif, see DeviceTraits.
  [[nodiscard]] bool needs_goodbye() const noexcept { return traits_.needs_goodbye; }
  // Returns whether the link is in the memory of this machine.
  [[nodiscard]] bool local_link() const noexcept { return traits_.local; }
  // Returns whether the device is AF_PACKET, see DeviceTraits.
  [[nodiscard]] bool stalls_on_long_frame() const noexcept { return traits_.stalls_on_long_frame; }
  // Returns whether the port uses sockets of the kernel, see DeviceTraits.
  [[nodiscard]] bool of_sockets() const noexcept { return traits_.sockets; }
  // Returns whether the device computes the IPv4 and UDP checksums of packets whose flags ask for it. Only once
  // started().
  [[nodiscard]] bool checksum_offload() const noexcept { return checksum_offload_; }
  // Returns the name of DPDK's driver, such as net_ixgbe; "": it has none. Only once started().
  [[nodiscard]] const std::string& driver() const noexcept { return driver_; }
  // Returns how packets of a lane come to its queue, and which numbers of workers are possible then.
  [[nodiscard]] const Steering& steering() const noexcept { return steering_; }
  // Returns the NUMA node of a card; -1: not known, or not a card.
  [[nodiscard]] int numa_node() const noexcept { return numa_node_; }
  // Returns the socket file that the device has made; empty: none.
  [[nodiscard]] virtual std::string socket_file() const { return ""; }
  // AF_XDP: returns whether the program stays on the interface at the end, because the process may not remove it.
  [[nodiscard]] virtual bool program_stays() const noexcept { return false; }

  // Returns how many packets may wait in a queue without loss: a power of two. Further packets may get lost.
  [[nodiscard]] virtual size_t most_waiting() const noexcept { return SIZE_MAX / 2 + 1; }

  // Returns the packet socket of an accelerator's AF_PACKET device, for push_ring(); -1 for any other device. Only once
  // started().
  [[nodiscard]] virtual int packet_socket() const noexcept { return -1; }
  // Returns the number of frames that were lost because a packet socket was full. Control thread.
  [[nodiscard]] virtual uint64_t missed() const noexcept { return 0; }
  // Counts of TCP superpackets: `received` ones were cut into packets, `sent` ones were made of packets. Any thread.
  struct Superpackets {
    uint64_t received = 0;
    uint64_t sent = 0;
  };
  [[nodiscard]] virtual Superpackets superpackets() const noexcept { return {}; }

  // Returns the file descriptors that become readable when packets come to a queue, for a worker that sleeps until
  // then. It returns none if the port has no such descriptors.
  [[nodiscard]] virtual std::vector<int> fds(unsigned) const { return {}; }

  // Does the regular work of the port. Call it every 100 ms, once all devices of the process have been made. Throws
  // SetupError if a device that blocks cannot be made, and DeviceLost if the interface or card is gone.
  virtual void maintain() = 0;
  // Ends a device that blocks. Returns false for any other device. The device's thread may still wait for the
  // neighbour, so nothing of the port can be freed. The port and the thread end with the process.
  [[nodiscard]] virtual bool leave() noexcept { return false; }

  // ---- Any thread.
  // Returns whether the link was up at the latest check, at most 100 ms ago.
  [[nodiscard]] bool link_up() const noexcept { return link_up_.load(std::memory_order_relaxed); }
  // Returns the speed in Mb/s; 0: the device does not report it.
  [[nodiscard]] unsigned link_speed() const noexcept { return link_speed_.load(std::memory_order_relaxed); }
  // Returns whether the port is started. Otherwise its queues must not be touched.
  [[nodiscard]] bool started() const noexcept { return started_.load(std::memory_order_acquire); }

  // ---- The worker of the queue.
  // Receives at most `count` frames and returns their number. The caller owns them from then on.
  [[nodiscard]] virtual uint16_t receive(uint16_t queue, rte_mbuf** burst, uint16_t count) noexcept = 0;
  // Takes frames from the front of `burst` and returns their number. The port owns them from then on. Ports of sockets
  // take none.
  [[nodiscard]] virtual uint16_t send(uint16_t, rte_mbuf**, uint16_t) noexcept { return 0; }

  // Only ports of sockets (of_sockets()) have these. Packets lie where they would lie in frames, with or without
  // headers before them. All packets that one call receives have the same path. A call that sends gets the path of each
  // packet, and moves these like the packets.
  [[nodiscard]] virtual uint16_t receive_datagrams(uint16_t, rte_mbuf**, uint16_t, DatagramPath&) noexcept { return 0; }
  [[nodiscard]] virtual uint16_t send_datagrams(uint16_t, rte_mbuf**, DatagramPath*, uint16_t) noexcept { return 0; }
  // Asks senders for the rest of packets that have not come completely. Returns when to call it again.
  [[nodiscard]] virtual Nanos report_overdue(uint16_t, Nanos) noexcept { return kNever; }

 protected:
  // Sets one queue pair per lane; the device may turn out to have fewer. `node` is null for an accelerator.
  Port(const PortConfig& config, const NodeConfig* node);

  [[noreturn]] void fail(const SetupError& error) const;

  const PortConfig config_;
  const DeviceTraits traits_;
  const std::string name_;
  const unsigned lanes_;  // lanes of the node
  // The thread that makes the device writes these, before started_.
  bool checksum_offload_ = false;
  int numa_node_ = -1;
  std::string driver_;
  unsigned queues_;
  MacAddress mac_{};
  Steering steering_;
  std::atomic<bool> link_up_{false};     // the thread that maintains the device writes, any thread reads
  std::atomic<unsigned> link_speed_{0};  // the thread that maintains the device writes, any thread reads
  std::atomic<bool> started_{false};     // the thread that maintains the device writes, workers read
};

}  // namespace gradlane
