// telemetry.cc - figures as DPDK's telemetry wants them (its thread; the control thread brings them)
#include "dataplane/status/telemetry.h"

#include <rte_telemetry.h>
#include <rte_version.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <vector>

#include "dataplane/status/node_figures.h"

namespace gradlane {
namespace {

// DPDK's callbacks get no argument of ours, so this is the one place with a variable of its own.
std::mutex mutex;
std::vector<NodeFigures> latest;

constexpr size_t kMostNeighbours = 64;  // of a node
constexpr size_t kLongestText = RTE_TEL_MAX_STRING_LEN - 1;

// Names may have letters, digits, '_' and '/' only.
std::string tel_name(std::string name) {
  std::ranges::replace_if(
      name, [](unsigned char c) { return std::isalnum(c) == 0 && c != '_' && c != '/'; }, '_');
  return name;
}

// The name of today came with DPDK 23.03.
void add_number(rte_tel_data* one, const char* name, uint64_t value) {
#if RTE_VERSION >= RTE_VERSION_NUM(23, 3, 0, 0)
  rte_tel_data_add_dict_uint(one, name, value);
#else
  rte_tel_data_add_dict_u64(one, name, value);
#endif
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

// One dictionary per queue or rank.
void add(rte_tel_data* all, const std::string& name, const CounterValues& counters) {
  add_dictionary(all, name, [&counters](rte_tel_data* one) {
    for (const CounterValue& each : counters) add_number(one, each.name, each.value);
  });
}

void add_text(rte_tel_data* one, const char* name, const std::string& text) {
  rte_tel_data_add_dict_string(one, name, text.substr(0, kLongestText).c_str());
}

std::string name_of(const NodeFigures& node) { return "node" + std::to_string(node.node); }

int status(const char*, const char*, rte_tel_data* data) {
  const std::lock_guard lock(mutex);
  rte_tel_data_start_dict(data);
  for (const NodeFigures& node : latest) {
    add_dictionary(data, name_of(node), [&node](rte_tel_data* one) {
      add_text(one, "ring", node.whole ? "whole" : "not whole");
      add_text(one, "codec", node.codec);
      add_number(one, "nodes", node.nodes);
      add_number(one, "mtu", node.mtu);
      add_number(one, "lanes", node.lanes);
      add_number(one, "trainers", node.trainers);
      add_number(one, "attached", node.attached);
      add_number(one, "in_flight", node.in_flight);
    });
  }
  return 0;
}

int neighbours(const char*, const char*, rte_tel_data* data) {
  const std::lock_guard lock(mutex);
  rte_tel_data_start_dict(data);
  for (const NodeFigures& node : latest) {
    // DPDK's answers have 16 KiB: where there are many neighbours, those that are missing come first.
    std::vector<NeighbourFigures> all = node.neighbours;
    std::stable_partition(all.begin(), all.end(), [](const NeighbourFigures& it) { return !it.up; });
    if (all.size() > kMostNeighbours) all.resize(kMostNeighbours);
    for (const NeighbourFigures& neighbour : all) {
      add_dictionary(data, name_of(node) + "/node" + std::to_string(neighbour.node), [&neighbour](rte_tel_data* one) {
        add_text(one, "state", neighbour.up ? "up" : "missing");
        add_text(one, "why", neighbour.why);
        add_text(one, "port", neighbour.port);
        add_number(one, "arp_tries", neighbour.arp_tries);
        add_number(one, "forged", neighbour.forged);
      });
    }
  }
  return 0;
}

int pools(const char*, const char*, rte_tel_data* data) {
  const std::lock_guard lock(mutex);
  rte_tel_data_start_dict(data);
  for (const NodeFigures& node : latest) {
    for (size_t i = 0; i < node.pools.size(); ++i) {
      add_dictionary(data, name_of(node) + "/pool" + std::to_string(i), [&pool = node.pools[i]](rte_tel_data* one) {
        add_number(one, "buffers", pool.buffers);
        add_number(one, "free", pool.free);
      });
    }
  }
  return 0;
}

int ports(const char*, const char*, rte_tel_data* data) {
  const std::lock_guard lock(mutex);
  rte_tel_data_start_dict(data);
  for (const NodeFigures& node : latest) {
    for (const PortFigures& port : node.ports) {
      for (size_t i = 0; i < port.queues.size(); ++i) {
        add(data, name_of(node) + "/" + port.name + "/" + std::to_string(i), port.queues[i]);
      }
    }
  }
  return 0;
}

int ranks(const char*, const char*, rte_tel_data* data) {
  const std::lock_guard lock(mutex);
  rte_tel_data_start_dict(data);
  for (const NodeFigures& node : latest) {
    for (const RankFigures& rank : node.ranks) {
      add(data, "rank" + std::to_string(rank.rank) + "/lane" + std::to_string(rank.lane), rank.counters);
    }
  }
  return 0;
}

std::vector<NodeFigures> figures_of(std::span<const std::unique_ptr<Node>> nodes, Nanos now) {
  std::vector<NodeFigures> figures;
  for (const auto& node : nodes) figures.push_back(node_figures(*node, now));
  return figures;
}

}  // namespace

Telemetry::Telemetry(std::span<const std::unique_ptr<Node>> nodes, Nanos now) : nodes_(nodes) {
  look(now);
  rte_telemetry_register_cmd("/gradlane/status", status, "What each node is like: its ring, trainers, operations");
  rte_telemetry_register_cmd("/gradlane/neighbours", neighbours, "Neighbours of each node, and why one is missing");
  rte_telemetry_register_cmd("/gradlane/pools", pools, "Packet buffers of each node");
  rte_telemetry_register_cmd("/gradlane/ports", ports, "Frames of each port and queue, by what became of them");
  rte_telemetry_register_cmd("/gradlane/ranks", ranks, "Packets, runs and operations of each rank and lane");
}

void Telemetry::look(Nanos now) {
  std::vector<NodeFigures> figures = figures_of(nodes_, now);
  const std::lock_guard lock(mutex);
  latest.swap(figures);
}

Telemetry::~Telemetry() {
  const std::lock_guard lock(mutex);
  latest.clear();
}

}  // namespace gradlane
