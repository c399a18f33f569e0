// telemetry.cc - figures as DPDK's telemetry wants them (its thread; registration by the control thread)
#include "dataplane/status/telemetry.h"

#include <rte_mempool.h>
#include <rte_telemetry.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <vector>

namespace gradlane {
namespace {

// DPDK's callbacks get no argument of ours, so this is the one place with a variable of its own.
std::mutex mutex;
std::span<const std::unique_ptr<Node>> served;
// By node: what RingWatch has seen last, and how the node is.
struct Look {
  std::vector<RingWatch::Seen> neighbours;
  unsigned attached = 0;
};
std::vector<Look> looks;

constexpr size_t kLongestText = RTE_TEL_MAX_STRING_LEN - 1;

// Names may have letters, digits, '_' and '/' only.
std::string tel_name(std::string name) {
  std::ranges::replace_if(
      name, [](unsigned char c) { return std::isalnum(c) == 0 && c != '_' && c != '/'; }, '_');
  return name;
}

// A dictionary that fill(dictionary) puts entries into.
template <class Fill>
void add_dictionary(rte_tel_data* all, const std::string& name, Fill fill) {
  rte_tel_data* const one = rte_tel_data_alloc();
  if (one == nullptr) return;
  rte_tel_data_start_dict(one);
  fill(one);
  rte_tel_data_add_dict_container(all, tel_name(name).c_str(), one, 0);
}

// One dictionary per queue or rank: visit(name, value) for each counter.
template <class ForEach>
void add(rte_tel_data* all, const std::string& name, ForEach for_each) {
  add_dictionary(all, name, [&for_each](rte_tel_data* one) {
    for_each([one](const char* counter, uint64_t value) { rte_tel_data_add_dict_u64(one, counter, value); });
  });
}

void add_text(rte_tel_data* one, const char* name, const std::string& text) {
  rte_tel_data_add_dict_string(one, name, text.substr(0, kLongestText).c_str());
}

std::string name_of(const Node& node) { return "node" + std::to_string(node.config().rank); }

int status(const char*, const char*, rte_tel_data* data) {
  const std::lock_guard lock(mutex);
  rte_tel_data_start_dict(data);
  for (size_t i = 0; i < served.size(); ++i) {
    const Node& node = *served[i];
    const NodeConfig& config = node.config();
    bool whole = true;
    node.for_each_lane(
        [&whole](const Lane& lane, unsigned) { whole &= lane.ring_snapshot().state == RingSnapshot::State::kWhole; });
    add_dictionary(data, name_of(node), [&](rte_tel_data* one) {
      add_text(one, "ring", whole ? "whole" : "not whole");
      add_text(one, "codec", config.codec.name());
      rte_tel_data_add_dict_u64(one, "nodes", config.nodes.size());
      rte_tel_data_add_dict_u64(one, "mtu", config.mtu);
      rte_tel_data_add_dict_u64(one, "lanes", config.lanes);
      rte_tel_data_add_dict_u64(one, "trainers", config.trainers);
      rte_tel_data_add_dict_u64(one, "attached", looks[i].attached);
      rte_tel_data_add_dict_u64(one, "in_flight", node.in_flight());
    });
  }
  return 0;
}

int neighbours(const char*, const char*, rte_tel_data* data) {
  const std::lock_guard lock(mutex);
  rte_tel_data_start_dict(data);
  for (size_t i = 0; i < served.size(); ++i) {
    for (const RingWatch::Seen& seen : looks[i].neighbours) {
      add_dictionary(data, name_of(*served[i]) + "/node" + std::to_string(seen.facts.node), [&seen](rte_tel_data* one) {
        add_text(one, "state", seen.facts.up ? "up" : "missing");
        add_text(one, "why", seen.why);
        add_text(one, "port", seen.facts.port);
        rte_tel_data_add_dict_u64(one, "arp_tries", seen.facts.arp_tries);
        rte_tel_data_add_dict_u64(one, "forged", seen.facts.forged);
      });
    }
  }
  return 0;
}

int pools(const char*, const char*, rte_tel_data* data) {
  const std::lock_guard lock(mutex);
  rte_tel_data_start_dict(data);
  for (const auto& node : served) {
    for (size_t i = 0; i < node->pools().size(); ++i) {
      const rte_mempool* const pool = node->pools()[i]->mempool();
      if (pool == nullptr) continue;
      add_dictionary(data, name_of(*node) + "/pool" + std::to_string(i), [pool](rte_tel_data* one) {
        rte_tel_data_add_dict_u64(one, "buffers", pool->size);
        rte_tel_data_add_dict_u64(one, "free", rte_mempool_avail_count(pool));
      });
    }
  }
  return 0;
}

int ports(const char*, const char*, rte_tel_data* data) {
  const std::lock_guard lock(mutex);
  rte_tel_data_start_dict(data);
  for (const auto& node : served) {
    node->for_each_queue([&](const PortQueue& queue, unsigned number) {
      add(data, "node" + std::to_string(node->config().rank) + "/" + queue.port().name() + "/" + std::to_string(number),
          [&queue](auto visit) { queue.for_each_published(visit); });
    });
  }
  return 0;
}

int ranks(const char*, const char*, rte_tel_data* data) {
  const std::lock_guard lock(mutex);
  rte_tel_data_start_dict(data);
  for (const auto& node : served) {
    node->for_each_lane([&](const Lane& lane, unsigned number) {
      add(data, "rank" + std::to_string(lane.rank()) + "/lane" + std::to_string(number),
          [&lane](auto visit) { lane.for_each_published(visit); });
    });
  }
  return 0;
}

}  // namespace

Telemetry::Telemetry(std::span<const std::unique_ptr<Node>> nodes) {
  const std::lock_guard lock(mutex);
  served = nodes;
  looks.resize(nodes.size());
  rte_telemetry_register_cmd("/gradlane/status", status, "What each node is like: its ring, trainers, operations");
  rte_telemetry_register_cmd("/gradlane/neighbours", neighbours, "Neighbours of each node, and why one is missing");
  rte_telemetry_register_cmd("/gradlane/pools", pools, "Packet buffers of each node");
  rte_telemetry_register_cmd("/gradlane/ports", ports, "Frames of each port and queue, by what became of them");
  rte_telemetry_register_cmd("/gradlane/ranks", ranks, "Packets, runs and operations of each rank and lane");
}

void Telemetry::look() {
  std::vector<Look> latest;
  for (const auto& node : served) latest.push_back({node->ring().neighbours(), node->server().attached()});
  const std::lock_guard lock(mutex);
  looks = std::move(latest);
}

Telemetry::~Telemetry() {
  const std::lock_guard lock(mutex);
  served = {};
  looks.clear();
}

}  // namespace gradlane
