// steering.h - steering of packets of lane k to queue k of a port, and the possible numbers of workers (control thread
// only)
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "config/config.h"
#include "dataplane/device/rss_table.h"

struct rte_eth_conf;
struct rte_eth_dev_info;
struct rte_flow;

namespace gradlane {

// Steers packets to lanes. Lanes of different workers must receive their packets at different queues. The first of
// these methods that is possible is used:
//   - one worker is configured: it polls all queues, and any packet may come to any of them;
//   - by construction: queue k of the link is queue k of the other side, which sends packets for lane k there;
//   - rte_flow: one rule per UDP destination port;
//   - RSS: a key and a table that bring every flow that neighbours can send to its lane's queue;
//   - none: one worker runs all lanes, although more are configured.
// Other frames may come to any queue.
class Steering {
 public:
  // `nodes` are the nodes that are reached through the port.
  Steering(const NodeConfig& config, std::span<const unsigned> nodes, bool by_construction);
  // Makes an object for a port with one queue pair and no lanes.
  Steering() noexcept;
  Steering(const Steering&) = delete;
  Steering& operator=(const Steering&) = delete;

  // Asks for RSS in `conf`, if it could be needed and the device supports it. Call it before rte_eth_dev_configure()
  // for `queues` queue pairs, at most one per lane.
  void prepare(const rte_eth_dev_info& info, unsigned queues, rte_eth_conf& conf);
  // Takes RSS out of `conf` again, after rte_eth_dev_configure() has failed. Returns false if `conf` did not ask for
  // RSS.
  [[nodiscard]] bool give_up_rss(rte_eth_conf& conf);
  // Sets up the steering once the port has started. With steering by construction, the port need not exist.
  void apply(uint16_t port, unsigned queues);
  // Removes the rules; call it before the port stops.
  void remove() noexcept;

  // Returns whether `workers` workers may divide lanes and queues among them: lane k and queue k belong to worker k %
  // workers.
  [[nodiscard]] bool allows(unsigned workers) const noexcept {
    return workers == 1 || (steered_ && workers_fit(lanes_, queues_, workers));
  }
  // Returns, for the log, the method that was chosen and why no better one is possible.
  [[nodiscard]] const std::string& text() const noexcept { return text_; }

 private:
  // The first two return "", or why the method is not possible. The third returns whether the device reports the key
  // and table that it was given.
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
  std::optional<RssTable> rss_;
  std::string no_rss_ = "not reported";  // reason why RSS is not used
  bool steered_ = false;
  std::string text_;
};

}  // namespace gradlane
