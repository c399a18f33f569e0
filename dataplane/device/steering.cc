// steering.cc - rte_flow rules, RSS keys and tables of a device (control thread only)
#include "dataplane/device/steering.h"

#include <rte_ethdev.h>
#include <rte_flow.h>
#include <spdlog/fmt/fmt.h>

#include <algorithm>
#include <cstring>

namespace gradlane {
namespace {

constexpr uint64_t kHashed = RTE_ETH_RSS_NONFRAG_IPV4_UDP;
constexpr size_t kUsualKey = 40;  // bytes of the key if the driver does not report a length
constexpr size_t kGroup = RTE_ETH_RETA_GROUP_SIZE;

// A rule that steers packets for a UDP port to a queue. Its members point to one another.
struct Rule {
  Rule(uint16_t udp_port, uint16_t queue_index) {
    attributes.ingress = 1;
    port.hdr.dst_port = rte_cpu_to_be_16(udp_port);
    mask.hdr.dst_port = 0xffff;
    queue.index = queue_index;
    pattern[0].type = RTE_FLOW_ITEM_TYPE_ETH;
    pattern[1].type = RTE_FLOW_ITEM_TYPE_IPV4;
    pattern[2].type = RTE_FLOW_ITEM_TYPE_UDP;
    pattern[2].spec = &port;
    pattern[2].mask = &mask;
    pattern[3].type = RTE_FLOW_ITEM_TYPE_END;
    actions[0].type = RTE_FLOW_ACTION_TYPE_QUEUE;
    actions[0].conf = &queue;
    actions[1].type = RTE_FLOW_ACTION_TYPE_END;
  }
  Rule(const Rule&) = delete;
  Rule& operator=(const Rule&) = delete;

  rte_flow_attr attributes{};
  rte_flow_item_udp port{};
  rte_flow_item_udp mask{};
  rte_flow_action_queue queue{};
  rte_flow_item pattern[4]{};
  rte_flow_action actions[2]{};
};

rte_eth_rss_conf hash_of(RssTable& plan) {
  rte_eth_rss_conf hash{};  // DPDK 24.11 has one more member
  hash.rss_key = plan.key.data();
  hash.rss_key_len = static_cast<uint8_t>(plan.key.size());
  hash.rss_hf = kHashed;
  return hash;
}

std::string reason_of(const rte_flow_error& error, int code) {
  if (error.message != nullptr) return error.message;
  return code == 0 ? "no reason given" : rte_strerror(code);
}

}  // namespace

Steering::Steering(const NodeConfig& config, std::span<const unsigned> nodes, bool by_construction)
    : lanes_(config.lanes),
      threads_(config.threads),
      ranks_(ranks_per_node(config)),
      udp_port_(config.udp_port),
      by_construction_(by_construction),
      flows_(arriving_flows(config, nodes)) {}

Steering::Steering() noexcept : lanes_(1), threads_(1), ranks_(1), udp_port_(0), by_construction_(false) {}

void Steering::prepare(const rte_eth_dev_info& info, unsigned queues, rte_eth_conf& conf) {
  queues_ = queues;
  if (by_construction_ || threads_ == 1 || queues_ == 1) return;
  if ((info.flow_type_rss_offloads & kHashed) == 0) {
    no_rss_ = "it cannot hash UDP ports";
  } else if (info.reta_size == 0) {
    no_rss_ = "it has no table of queues";
  } else {
    rss_ = plan_rss(flows_, queues_, info.reta_size, info.hash_key_size == 0 ? kUsualKey : info.hash_key_size);
    if (!rss_) no_rss_ = fmt::format("no key found for {} flows and {} entries", flows_.size(), info.reta_size);
  }
  if (!rss_) return;
  conf.rxmode.mq_mode = RTE_ETH_MQ_RX_RSS;
  conf.rx_adv_conf.rss_conf = hash_of(*rss_);
}

bool Steering::give_up_rss(rte_eth_conf& conf) {
  if (!rss_) return false;
  rss_.reset();
  no_rss_ = "not accepted";
  conf.rxmode.mq_mode = RTE_ETH_MQ_RX_NONE;
  conf.rx_adv_conf.rss_conf = {};
  return true;
}

void Steering::apply(uint16_t port, unsigned queues) {
  port_ = port;
  queues_ = queues;
  steered_ = false;
  if (threads_ == 1) {
    text_ = "one worker for all lanes: there is nothing to steer";
    return;
  }
  if (queues_ == 1) {
    text_ = "one queue, one worker for all lanes: this device has only one queue";
    return;
  }
  const std::string fewer =
      workers_fit(lanes_, queues_, threads_) ? "" : fmt::format("; {} queues for {} lanes", queues_, lanes_);
  steered_ = true;
  if (by_construction_) {
    text_ = "packets need no steering to lanes: queue k receives what the other side sends on its queue k" + fewer;
    return;
  }
  const std::string no_flow = make_rules();
  if (no_flow.empty()) {
    text_ = fmt::format("packets are steered to lanes by rte_flow: {} rules{}", rules_.size(), fewer);
    return;
  }
  if (rss_) no_rss_ = fill_table();
  if (rss_ && no_rss_.empty()) {
    text_ = fmt::format("packets are steered to lanes by RSS: {} flows in {} entries, as there is no rte_flow ({}){}",
                        flows_.size(), rss_->table.size(), no_flow, fewer);
    return;
  }
  steered_ = false;
  text_ = fmt::format("{} queues, one worker for all lanes: this device has neither rte_flow ({}) nor RSS ({})",
                      queues_, no_flow, no_rss_);
}

// Makes the rules. All are validated before any is made, because only a part of them would be worse than none.
std::string Steering::make_rules() {
  for (const bool make : {false, true}) {
    for (unsigned i = 0; i < lanes_ * ranks_; ++i) {
      const auto udp_port = static_cast<uint16_t>(udp_port_ + i);
      const Rule rule(udp_port, static_cast<uint16_t>(i / ranks_ % queues_));
      rte_flow_error error{};
      if (!make) {
        const int result = rte_flow_validate(port_, &rule.attributes, rule.pattern, rule.actions, &error);
        if (result != 0) return reason_of(error, -result);
        continue;
      }
      rte_flow* const made = rte_flow_create(port_, &rule.attributes, rule.pattern, rule.actions, &error);
      if (made == nullptr) {
        remove();
        return fmt::format("rule for UDP port {}: {}", udp_port, reason_of(error, rte_errno));
      }
      rules_.push_back(made);
    }
  }
  return "";
}

std::string Steering::fill_table() {
  // Some drivers forget these settings of rte_eth_dev_configure(). Others accept them only there. So they are set
  // again, and what the device reads back decides.
  rte_eth_rss_conf hash = hash_of(*rss_);
  (void)rte_eth_dev_rss_hash_update(port_, &hash);
  std::vector<rte_eth_rss_reta_entry64> table((rss_->table.size() + kGroup - 1) / kGroup);
  for (size_t i = 0; i < rss_->table.size(); ++i) {
    table[i / kGroup].mask |= uint64_t{1} << (i % kGroup);
    table[i / kGroup].reta[i % kGroup] = rss_->table[i];
  }
  const int result = rte_eth_dev_rss_reta_update(port_, table.data(), static_cast<uint16_t>(rss_->table.size()));
  if (result != 0) return std::string("table of queues: ") + rte_strerror(-result);
  return reads_back() ? "" : "the device reports another key or table than it was given";
}

bool Steering::reads_back() const {
  std::vector<uint8_t> key(rss_->key.size());
  rte_eth_rss_conf hash{};
  hash.rss_key = key.data();
  hash.rss_key_len = static_cast<uint8_t>(key.size());
  if (rte_eth_dev_rss_hash_conf_get(port_, &hash) != 0 || key != rss_->key || hash.rss_hf != kHashed) return false;
  std::vector<rte_eth_rss_reta_entry64> table((rss_->table.size() + kGroup - 1) / kGroup);
  for (rte_eth_rss_reta_entry64& group : table) group.mask = ~uint64_t{0};
  if (rte_eth_dev_rss_reta_query(port_, table.data(), static_cast<uint16_t>(rss_->table.size())) != 0) return false;
  for (size_t i = 0; i < rss_->table.size(); ++i) {
    if (table[i / kGroup].reta[i % kGroup] != rss_->table[i]) return false;
  }
  return true;
}

void Steering::remove() noexcept {
  for (rte_flow* const rule : rules_) {
    rte_flow_error error{};
    (void)rte_flow_destroy(port_, rule, &error);
  }
  rules_.clear();
}

}  // namespace gradlane
