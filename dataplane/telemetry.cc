// telemetry.cc - figures as DPDK's telemetry wants them (its thread; registration by the control thread)
#include "dataplane/telemetry.h"

#include <rte_telemetry.h>

#include <algorithm>
#include <mutex>
#include <string>

namespace gradlane {
namespace {

// DPDK's callbacks get no argument of ours, so this is the one place with a variable of its own.
std::mutex mutex;
std::span<const std::unique_ptr<Node>> served;

// Names may have letters, digits, '_' and '/' only.
std::string tel_name(std::string name) {
  std::ranges::replace_if(
      name, [](unsigned char c) { return std::isalnum(c) == 0 && c != '_' && c != '/'; }, '_');
  return name;
}

// One dictionary per queue or rank: visit(name, value) for each counter.
template <class ForEach>
void add(rte_tel_data* all, const std::string& name, ForEach for_each) {
  rte_tel_data* const one = rte_tel_data_alloc();
  if (one == nullptr) return;
  rte_tel_data_start_dict(one);
  for_each([one](const char* counter, uint64_t value) { rte_tel_data_add_dict_u64(one, counter, value); });
  rte_tel_data_add_dict_container(all, tel_name(name).c_str(), one, 0);
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
    node->for_each_endpoint([&](const Endpoint& endpoint, unsigned lane) {
      add(data, "rank" + std::to_string(endpoint.rank()) + "/lane" + std::to_string(lane),
          [&endpoint](auto visit) { endpoint.for_each_published(visit); });
    });
  }
  return 0;
}

}  // namespace

Telemetry::Telemetry(std::span<const std::unique_ptr<Node>> nodes) {
  const std::lock_guard lock(mutex);
  served = nodes;
  rte_telemetry_register_cmd("/gradlane/ports", ports, "Frames of each port and queue, by what became of them");
  rte_telemetry_register_cmd("/gradlane/ranks", ranks, "Packets, runs and operations of each rank and lane");
}

Telemetry::~Telemetry() {
  const std::lock_guard lock(mutex);
  served = {};
}

}  // namespace gradlane
