// steering.h - how packets of lane k come to queue k of a port, and how many workers that allows (control thread only)
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "config/config.h"
#include "dataplane/device/rss_plan.h"

struct rte_eth_conf;
struct rte_eth_dev_info;
struct rte_flow;

namespace gradlane {

// Lanes of different workers need their packets at queues of their own. In this order:
//   - one worker is configured: it polls all queues, and any packet may come to any of them;
//   - by construction: the link's queue k is queue k of the other side, which sends what is for lane k there;
//   - rte_flow: a rule per UDP destination port;
//   - RSS: with a key and a table which put every flow that neighbours can send at its lane's queue;
//   - one worker runs all lanes after all.
// Frames which none of this is about may come to any queue.
class Steering {
 public:
  // `nodes` are reached through the port.
  Steering(const NodeConfig& config, std::span<const unsigned> nodes, bool by_construction);
  // One queue pair, and no lanes.
  Steering() noexcept;
  Steering(const Steering&) = delete;
  Steering& operator=(const Steering&) = delete;

  // Before rte_eth_dev_configure() for so many queue pairs, at most one per lane: asks for RSS if it could be needed
  // and the device can do it.
  void prepare(const rte_eth_dev_info& info, unsigned queues, rte_eth_conf& conf);
  // rte_eth_dev_configure() did not take that: takes it out again.
  [[nodiscard]] bool give_up_rss(rte_eth_conf& conf);
  // Once the port has started. By construction, it need not exist.
  void apply(uint16_t port, unsigned queues);
  // Before it stops.
  void remove() noexcept;

  // So many workers may divide lanes and queues among them: lane k and queue k to worker k % workers.
  [[nodiscard]] bool allows(unsigned workers) const noexcept {
    return workers == 1 || (steered_ && workers_fit(lanes_, queues_, workers));
  }
  // For the log: what was chosen, and why nothing better.
  [[nodiscard]] const std::string& text() const noexcept { return text_; }

 private:
  // Empty, or why it cannot be.
  [[nodiscard]] std::string make_rules();
  [[nodiscard]] std::string fill_table();
  [[nodiscard]] bool reads_back() const;

  const unsigned lanes_;
  const unsigned threads_;
  const unsigned ranks_;
  const uint16_t udp_port_;
  const bool by_construction_;
  const std::vector<ArrivingFlow> flows_;
  uint16_t port_ = 0;
  unsigned queues_ = 1;
  std::vector<rte_flow*> rules_;
  std::optional<RssPlan> rss_;
  std::string no_rss_ = "not reported";  // why
  bool steered_ = false;
  std::string text_;
};

}  // namespace gradlane
