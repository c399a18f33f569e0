// port.h - a DPDK port of a node or an accelerator: made from devargs, a PCI address or an in-process link (control
// thread, and one thread for each device that makes its caller wait)
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/file_descriptor.h"
#include "config/config.h"
#include "dataplane/device/port_kinds.h"
#include "dataplane/device/ring_links.h"
#include "dataplane/device/steering.h"
#include "dataplane/kernel/host_claim.h"

struct rte_eth_dev_info;
struct rte_mempool;

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
  // Makes the device with one queue pair per lane, or as many as it can have, and starts it; received packets go to the
  // node's pool. A device that blocks comes later, see tend(). Throws SetupError: "port e0: ...". `unique` tells
  // the devices of several nodes apart.
  Port(const PortConfig& config, const NodeConfig& node, std::span<rte_mempool* const> pools, RingLinks& links,
       const std::string& unique);
  // For an accelerator: one queue pair, and all frames, whomever they are for, as they are. No ring.
  Port(const PortConfig& config, size_t mtu, rte_mempool* pool);
  // Stops and closes the device, unless that is left to the end of the process.
  ~Port();
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] const std::string& device() const noexcept { return config_.device; }
  // Only once started().
  [[nodiscard]] uint16_t id() const noexcept { return id_; }
  [[nodiscard]] unsigned queues() const noexcept { return queues_; }
  [[nodiscard]] const MacAddress& mac() const noexcept { return mac_; }
  [[nodiscard]] const std::vector<unsigned>& nodes() const noexcept { return config_.nodes; }
  // What is sent arrives as the same buffer, which the receiver may write to: so only copies are sent.
  [[nodiscard]] bool shares_buffers() const noexcept { return traits_.shares_buffers; }
  // memif, see DeviceTraits.
  [[nodiscard]] bool needs_goodbye() const noexcept { return traits_.needs_goodbye; }
  // The socket file that the device has made; empty: none.
  [[nodiscard]] std::string socket_file() const { return made_ && !traits_.blocks ? traits_.socket : ""; }
  // A link in the memory of this machine.
  [[nodiscard]] bool local_link() const noexcept { return traits_.local; }
  // The device computes the checksums of IPv4 and UDP of packets whose flags ask for it. Only once started().
  [[nodiscard]] bool checksum_offload() const noexcept { return checksum_offload_; }
  // Of an accelerator's AF_PACKET device, for push_ring(); -1: it is another device. Only once started().
  [[nodiscard]] int packet_socket() const noexcept { return packet_socket_; }
  // Frames that came to it and got lost, as its ring was full. Control thread.
  [[nodiscard]] uint64_t missed() const noexcept { return missed_; }
  // Of a card; -1: not known, or not a card.
  [[nodiscard]] int numa_node() const noexcept { return numa_node_; }
  // The same before the port is made.
  [[nodiscard]] static int numa_node_of(const PortConfig& config) noexcept;
  // How packets of a lane come to its queue, and how many workers that allows.
  [[nodiscard]] const Steering& steering() const noexcept { return steering_; }
  // AF_XDP: the program stays on the interface if the process has no right to take it off at the end.
  [[nodiscard]] bool program_stays() const noexcept;
  // As of the last look, at most 100 ms ago.
  [[nodiscard]] bool link_up() const noexcept { return link_up_.load(std::memory_order_relaxed); }

  // Every 100 ms, once all devices of the process have been made, as DPDK makes one at a time; the first time it starts
  // the thread of a device that blocks, which is started() when its neighbour has come. Looks at the link. A memif
  // client cannot start before its server listens, is turned away by one that has not started, and does not come back
  // by itself to one that has restarted: so it is stopped and started again until its link is up. Throws SetupError if
  // a device that blocks cannot be had, and DeviceLost if the interface of the kernel is not there any more: it was
  // deleted, its driver was loaded anew, or it was given to another network namespace. One of the same name that comes
  // later is another one, to which the device's sockets do not lead.
  void tend();
  // The end of a device that blocks; false: it has none. Its thread may wait for the neighbour still, so that nothing
  // of the port can be freed; both end with the process.
  [[nodiscard]] bool leave() noexcept;
  // Any thread. Queues must not be touched otherwise.
  [[nodiscard]] bool started() const noexcept { return started_.load(std::memory_order_acquire); }

 private:
  // `node`: null for an accelerator.
  Port(const PortConfig& config, const NodeConfig* node, size_t mtu, std::span<rte_mempool* const> pools);
  template <class Make>
  void make(Make make_device);
  void make_ring(RingLinks& links, const std::string& unique);
  void probe();
  [[nodiscard]] static bool find(const PortConfig& config, uint16_t& id) noexcept;
  bool try_start() noexcept;
  void start();
  void configure(const rte_eth_dev_info& info);
  void open_to_all();
  void look_at_socket();
  void look_at_link() noexcept;
  void look_for_interface() const;
  void begin();
  void keep() noexcept;
  [[noreturn]] void fail(const std::string& text) const;

  const PortConfig config_;
  const DeviceTraits traits_;
  const std::string name_;
  // Of the node.
  const bool all_frames_;  // those for others, too; and nothing of them is looked at
  const size_t mtu_;
  const unsigned lanes_;
  const std::vector<rte_mempool*> pools_;  // by lane
  // Written by whoever makes the device, before started_.
  uint16_t id_ = 0;
  bool made_ = false;
  bool promiscuous_ = false;
  int packet_socket_ = -1;
  uint64_t missed_ = 0;             // as of the last tend()
  std::optional<HostClaim> claim_;  // of the interface
  FileDescriptor program_;          // keeps an XDP program on it
  FileDescriptor listening_;        // keeps an interface of the kernel promiscuous
  bool checksum_offload_ = false;
  int numa_node_ = -1;
  unsigned interface_ = 0;  // of the kernel, that the device sends and receives with; 0: none
  unsigned queues_;
  MacAddress mac_{};
  unsigned down_ = 0;                 // looks in a row that found the link of a started memif client down
  bool logged_up_ = false;            // what the log says of the link
  bool kept_ = false;                 // there is a thread
  std::string failure_;               // of the thread, before failed_
  std::atomic<bool> failed_{false};   // its thread writes, the control thread reads
  std::atomic<bool> left_{false};     // the control thread writes, its thread reads
  std::atomic<bool> link_up_{false};  // whoever tends the device writes, any thread reads
  Steering steering_;
  std::atomic<bool> started_{false};  // whoever tends the device writes, workers read
};

}  // namespace gradlane
