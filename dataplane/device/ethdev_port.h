// ethdev_port.h - a DPDK device: made from devargs, a PCI address or an in-process link (control thread, and one thread
// for each device that makes its caller wait)
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/file_descriptor.h"
#include "config/config.h"
#include "dataplane/device/port.h"
#include "dataplane/device/removal.h"
#include "dataplane/device/ring_links.h"
#include "dataplane/kernel/host_claim.h"

struct rte_eth_dev_info;
struct rte_mempool;

namespace gradlane {

class EthdevPort final : public Port {
 public:
  // Makes the device with one queue pair per lane, or as many as it can have, and starts it; received packets go to the
  // node's pool. A device that blocks comes later, see tend(). Throws SetupError: "port e0: ...". `unique` tells
  // the devices of several nodes apart.
  EthdevPort(const PortConfig& config, const NodeConfig& node, std::span<rte_mempool* const> pools, RingLinks& links,
             const std::string& unique);
  // For an accelerator: one queue pair, and all frames, whomever they are for, as they are. No ring.
  EthdevPort(const PortConfig& config, size_t mtu, rte_mempool* pool);
  // Stops and closes the device, unless that is left to the end of the process.
  ~EthdevPort() override;

  // Only once started().
  [[nodiscard]] uint16_t id() const noexcept { return id_; }
  [[nodiscard]] std::string socket_file() const override { return made_ && !traits_.blocks ? traits_.socket : ""; }
  [[nodiscard]] int packet_socket() const noexcept override { return packet_socket_; }
  [[nodiscard]] uint64_t missed() const noexcept override { return missed_; }
  // Of a card, before the port is made; -1: not known, or not a card.
  [[nodiscard]] static int numa_node_of(const PortConfig& config) noexcept;
  // The same: its receive buffers are powers of two, see longest_packet(). Before DPDK has looked at cards, and memory
  // is reckoned: they may be.
  [[nodiscard]] static bool wants_powers(const PortConfig& config);
  [[nodiscard]] static bool may_want_powers(const PortConfig& config);
  [[nodiscard]] bool program_stays() const noexcept override;

  // DPDK makes one device at a time: the first time it starts the thread of a device that blocks, which is started()
  // when its neighbour has come. Looks at the link. A memif client cannot start before its server listens, is turned
  // away by one that has not started, and does not come back by itself to one that has restarted: so it is stopped and
  // started again until its link is up. Throws DeviceLost if the interface of the kernel is not there any more: it was
  // deleted, its driver was loaded anew, or it was given to another network namespace. One of the same name that comes
  // later is another one, to which the device's sockets do not lead. Likewise if a card is taken out of the machine.
  void tend() override;
  [[nodiscard]] bool leave() noexcept override;

  [[nodiscard]] uint16_t receive(uint16_t queue, rte_mbuf** burst, uint16_t count) noexcept override;
  [[nodiscard]] uint16_t send(uint16_t queue, rte_mbuf** burst, uint16_t count) noexcept override;

 private:
  // `node`: null for an accelerator.
  EthdevPort(const PortConfig& config, const NodeConfig* node, size_t mtu, std::span<rte_mempool* const> pools);
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
  void look_for_card() const;
  void begin();
  void keep() noexcept;

  const bool all_frames_;                  // those for others, too; and nothing of them is looked at
  const size_t mtu_;                       // of the node
  const std::vector<rte_mempool*> pools_;  // by lane
  // Written by whoever makes the device, before started_.
  uint16_t id_ = 0;
  bool made_ = false;
  bool promiscuous_ = false;
  int packet_socket_ = -1;
  uint64_t missed_ = 0;              // as of the last tend()
  std::optional<HostClaim> claim_;   // of the interface
  std::optional<Removal> removal_;   // of a device that does not block
  FileDescriptor program_;           // keeps an XDP program on it
  FileDescriptor listening_;         // keeps an interface of the kernel promiscuous
  unsigned interface_ = 0;           // of the kernel, that the device sends and receives with; 0: none
  unsigned down_ = 0;                // looks in a row that found the link of a started memif client down
  bool logged_up_ = false;           // what the log says of the link
  bool kept_ = false;                // there is a thread
  std::string failure_;              // of the thread, before failed_
  std::atomic<bool> failed_{false};  // its thread writes, the control thread reads
  std::atomic<bool> left_{false};    // the control thread writes, its thread reads
};

}  // namespace gradlane
