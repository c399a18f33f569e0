// ethdev_port.h - a port of a DPDK device: made from devargs, a PCI address or an in-process link (control thread, and
// one thread for each device whose calls block)
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

struct rte_eth_dev_info;
struct rte_mempool;

namespace gradlane {

class EthdevPort final : public Port {
 public:
  // Makes the device with one queue pair per lane, or as many as it can have, and starts it. Received packets are in
  // buffers of `pools`. A device that blocks is made later, see maintain(). `unique` makes the names of the devices of
  // several nodes differ. Throws SetupError: "port e0: ...".
  EthdevPort(const PortConfig& config, const NodeConfig& node, std::span<rte_mempool* const> pools, RingLinks& links,
             const std::string& unique);
  // Makes the device of an accelerator: it has one queue pair, and receives all frames unchanged, whatever their
  // destination. It cannot be an in-process link.
  EthdevPort(const PortConfig& config, size_t mtu, rte_mempool* pool);
  // Stops and closes the device, unless DeviceTraits::never_closed is set.
  ~EthdevPort() override;

  // Returns DPDK's number of the device. Call it only once started().
  [[nodiscard]] uint16_t id() const noexcept { return id_; }
  [[nodiscard]] std::string socket_file() const override { return made_ && !traits_.blocks ? traits_.socket : ""; }
  [[nodiscard]] int packet_socket() const noexcept override { return packet_socket_; }
  [[nodiscard]] uint64_t missed() const noexcept override { return missed_; }
  // Returns the NUMA node of a card, before the port is made; -1: not known, or not a card.
  [[nodiscard]] static int numa_node_of(const PortConfig& config) noexcept;
  // `needs_power_of_two_buffers` returns whether a card's receive buffers are powers of two, see longest_packet(). Both
  // functions are called before the port is made. `may_need_power_of_two_buffers` is for the time before DPDK has found
  // the cards, when the memory is computed. It returns true in case of doubt.
  [[nodiscard]] static bool needs_power_of_two_buffers(const PortConfig& config);
  [[nodiscard]] static bool may_need_power_of_two_buffers(const PortConfig& config);
  [[nodiscard]] bool program_stays() const noexcept override;

  // Does the regular work of the port, see Port::maintain(). The first call starts the thread of a device that blocks.
  // Several such threads may run at once (dataplane/daemon/device_list.h). The device becomes started() when its
  // neighbour has connected. Each call checks the link.
  //
  // A memif client cannot start before its server listens, and a server that has not started rejects the client. A
  // client does not reconnect to a server that has restarted. So maintain() stops and starts the client again until its
  // link is up.
  //
  // Throws DeviceLost if the interface of the kernel is gone: it was deleted, its driver was loaded again, or it was
  // moved to another network namespace. A later interface of the same name is a different one, which the device's
  // sockets do not reach. Throws DeviceLost as well if a card is taken out of the machine.
  void maintain() override;
  [[nodiscard]] bool leave() noexcept override;

  [[nodiscard]] uint16_t receive(uint16_t queue, rte_mbuf** burst, uint16_t count) noexcept override;
  [[nodiscard]] uint16_t send(uint16_t queue, rte_mbuf** burst, uint16_t count) noexcept override;

 private:
  // `node` is null for an accelerator.
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

  const bool all_frames_;                  // accelerator: receive frames for others too, and check no checksums
  const size_t mtu_;                       // MTU of the node
  const std::vector<rte_mempool*> pools_;  // buffer pools by lane
  // The thread that makes the device writes these, before started_.
  uint16_t id_ = 0;
  bool made_ = false;
  bool promiscuous_ = false;
  int packet_socket_ = -1;
  uint64_t missed_ = 0;                  // total at the latest maintain()
  std::optional<RemovalWatch> removal_;  // notice of the removal of a device that does not block
  FileDescriptor program_;               // keeps the XDP program on the interface
  FileDescriptor listening_;             // keeps the interface of the kernel promiscuous
  unsigned interface_ = 0;               // interface of the kernel that the device sends and receives with; 0: none
  unsigned down_ = 0;                    // number of checks in a row that found the link of a started memif client down
  bool logged_up_ = false;               // state of the link in the log
  bool kept_ = false;                    // whether the thread of a device that blocks was started
  std::string failure_;                  // error of the device's thread; written before failed_
  std::atomic<bool> failed_{false};      // the device's thread writes, the control thread reads
  std::atomic<bool> left_{false};        // leave() was called; the control thread writes, the device's thread reads
};

}  // namespace gradlane
