// port.h - what a node sends and receives frames through, with a queue pair for each lane (control thread; bursts:
// worker threads)
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "base/error.h"
#include "config/config.h"
#include "dataplane/device/port_kinds.h"
#include "dataplane/device/steering.h"

struct rte_mbuf;

namespace gradlane {

// What a port stands on has gone: a new process can have what is there then.
class DeviceLost : public SetupError {
 public:
  using SetupError::SetupError;
};
// Exit status of a daemon that ends for that.
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
  // What is sent arrives as the same buffer, which the receiver may write to: so only copies are sent.
  [[nodiscard]] bool shares_buffers() const noexcept { return traits_.shares_buffers; }
  // memif, see DeviceTraits.
  [[nodiscard]] bool needs_goodbye() const noexcept { return traits_.needs_goodbye; }
  // A link in the memory of this machine.
  [[nodiscard]] bool local_link() const noexcept { return traits_.local; }
  // AF_PACKET, see DeviceTraits.
  [[nodiscard]] bool sticks() const noexcept { return traits_.sticks; }
  // Sockets, see DeviceTraits.
  [[nodiscard]] bool of_sockets() const noexcept { return traits_.sockets; }
  // The device computes the checksums of IPv4 and UDP of packets whose flags ask for it. Only once started().
  [[nodiscard]] bool checksum_offload() const noexcept { return checksum_offload_; }
  // DPDK's, as net_ixgbe; "": it has none. Only once started().
  [[nodiscard]] const std::string& driver() const noexcept { return driver_; }
  // How packets of a lane come to its queue, and how many workers that allows.
  [[nodiscard]] const Steering& steering() const noexcept { return steering_; }
  // Of a card; -1: not known, or not a card.
  [[nodiscard]] int numa_node() const noexcept { return numa_node_; }
  // The socket file that the device has made; empty: none.
  [[nodiscard]] virtual std::string socket_file() const { return ""; }
  // AF_XDP: the program stays on the interface if the process has no right to take it off at the end.
  [[nodiscard]] virtual bool program_stays() const noexcept { return false; }

  // How many packets may come to a queue before it is asked, and none gets lost: a power of two. Beyond it they may.
  [[nodiscard]] virtual size_t most_waiting() const noexcept { return SIZE_MAX / 2 + 1; }

  // Of DPDK's AF_PACKET device of an accelerator, for push_ring(); -1: it is another one. Only once started().
  [[nodiscard]] virtual int packet_socket() const noexcept { return -1; }
  // Frames that came to a packet socket and got lost, as it was full. Control thread.
  [[nodiscard]] virtual uint64_t missed() const noexcept { return 0; }
  // Those of TCP that it cut into packets, and that it made of packets. Any thread.
  struct Superpackets {
    uint64_t received = 0;
    uint64_t sent = 0;
  };
  [[nodiscard]] virtual Superpackets superpackets() const noexcept { return {}; }

  // What becomes readable when packets come to a queue, for who sleeps until then; none: nothing does.
  [[nodiscard]] virtual std::vector<int> fds(unsigned) const { return {}; }

  // Every 100 ms, once all devices of the process have been made. Throws SetupError if one that makes its caller wait
  // cannot be had, and DeviceLost if what it stands on has gone.
  virtual void tend() = 0;
  // The end of a device that blocks; false: it has none. Its thread may wait for the neighbour still, so that nothing
  // of the port can be freed; both end with the process.
  [[nodiscard]] virtual bool leave() noexcept { return false; }

  // ---- Any thread.
  // As of the last look, at most 100 ms ago.
  [[nodiscard]] bool link_up() const noexcept { return link_up_.load(std::memory_order_relaxed); }
  // Mb/s; 0: the device does not say.
  [[nodiscard]] unsigned link_speed() const noexcept { return link_speed_.load(std::memory_order_relaxed); }
  // Queues must not be touched otherwise.
  [[nodiscard]] bool started() const noexcept { return started_.load(std::memory_order_acquire); }

  // ---- The worker that has the queue.
  // Frames that came, at most `count`; each is the caller's from then on.
  [[nodiscard]] virtual uint16_t receive(uint16_t queue, rte_mbuf** burst, uint16_t count) noexcept = 0;
  // So many of them, from the front on, are the port's from then on.
  [[nodiscard]] virtual uint16_t send(uint16_t queue, rte_mbuf** burst, uint16_t count) noexcept = 0;

 protected:
  // One queue pair per lane, unless it turns out that it has fewer. `node`: null for an accelerator.
  Port(const PortConfig& config, const NodeConfig* node);

  [[noreturn]] void fail(const SetupError& error) const;

  const PortConfig config_;
  const DeviceTraits traits_;
  const std::string name_;
  const unsigned lanes_;  // of the node
  // Written by whoever makes the device, before started_.
  bool checksum_offload_ = false;
  int numa_node_ = -1;
  std::string driver_;
  unsigned queues_;
  MacAddress mac_{};
  Steering steering_;
  std::atomic<bool> link_up_{false};     // whoever tends the device writes, any thread reads
  std::atomic<unsigned> link_speed_{0};  // the same
  std::atomic<bool> started_{false};     // whoever tends the device writes, workers read
};

}  // namespace gradlane
