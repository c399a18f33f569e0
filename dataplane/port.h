// port.h - a DPDK port of a node: made from devargs, a PCI address or an in-process link (control thread only)
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "config/config.h"

struct rte_ring;
struct rte_mempool;

namespace gradlane {

// In-process links by name: two nodes of the process that name the same one get its two ends.
class RingLinks {
 public:
  ~RingLinks();
  // rx and tx rings of one end, one per lane. Throws SetupError for a third end, or another number of lanes.
  struct End {
    std::vector<rte_ring*> rx, tx;
  };
  [[nodiscard]] End take(const std::string& name, unsigned lanes);
  void check_all_have_two_ends() const;
  // Gives back packets on their way, while their pools are still there.
  void drain() noexcept;

 private:
  struct Link {
    unsigned ends = 0;
    std::vector<rte_ring*> there, back;
  };
  std::map<std::string, Link> links_;
};

class Port {
 public:
  // Makes the device with one queue pair per lane, or as many as it can have, and starts it; received packets go to the
  // pool of the lane. Throws SetupError: "port e0: ...". `unique` tells the devices of several nodes apart.
  Port(const PortConfig& config, const NodeConfig& node, std::span<rte_mempool* const> pools, RingLinks& links,
       const std::string& unique);
  // Stops and closes the device; one that needs_goodbye() is left to the end of the process.
  ~Port();
  Port(const Port&) = delete;
  Port& operator=(const Port&) = delete;

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] uint16_t id() const noexcept { return id_; }
  [[nodiscard]] unsigned queues() const noexcept { return queues_; }
  [[nodiscard]] const MacAddress& mac() const noexcept { return mac_; }
  [[nodiscard]] const std::vector<unsigned>& nodes() const noexcept { return nodes_; }
  // What is sent arrives as the same buffer, which the receiver may write to: so only copies are sent.
  [[nodiscard]] bool shares_buffers() const noexcept { return shares_buffers_; }
  // memif. The other side crashes if it polls while this side ends, as its rings are unmapped then. And a side that
  // stops its device while the other one does, may crash in DPDK's interrupt thread: it is only left alone, see the
  // destructor.
  [[nodiscard]] bool needs_goodbye() const noexcept { return needs_goodbye_; }
  [[nodiscard]] bool link_up() const noexcept;

  // Every 100 ms. A memif client cannot start before its server listens, is turned away by one that has not started,
  // and does not come back by itself to one that has restarted: so it is stopped and started again until its link is
  // up.
  void tend() noexcept;
  // Any thread. Queues must not be touched otherwise.
  [[nodiscard]] bool started() const noexcept { return started_.load(std::memory_order_acquire); }

 private:
  void make_device(const PortConfig& config, const NodeConfig& node, RingLinks& links, const std::string& unique);
  bool try_start() noexcept;
  void start(const PortConfig& config, const NodeConfig& node, std::span<rte_mempool* const> pools);
  void remove_socket() const noexcept;
  [[noreturn]] void fail(const std::string& text) const;

  std::string name_;
  std::vector<unsigned> nodes_;
  uint16_t id_ = 0;
  bool made_ = false;
  std::string socket_;       // memif server: its file
  bool reconnects_ = false;  // memif client
  unsigned down_ = 0;        // looks in a row that found the link of a started client down
  unsigned queues_ = 1;
  MacAddress mac_{};
  bool shares_buffers_ = false;
  bool needs_goodbye_ = false;
  std::atomic<bool> started_{false};  // control thread writes, workers read
};

}  // namespace gradlane
