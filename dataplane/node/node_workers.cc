// node_workers.cc - decides how many workers a node has, and checks that they get their packets (control thread only)
#include <spdlog/spdlog.h>

#include <algorithm>
#include <string_view>

#include "dataplane/kernel/kernel_interface.h"
#include "dataplane/node/node.h"

namespace gradlane {

// Sets the number of workers. A packet must be polled by the worker that has its lane. Lane k and queue k belong to
// worker k % (number of workers). The trainers' bells were made for the configured number of threads. The number of
// workers must divide it, so that each bell has one worker.
void Node::agree_on_workers() {
  const auto threads = static_cast<unsigned>(workers_.size());
  unsigned count = threads;
  const auto allow = [&](const NodePort& it) { return it.port->steering().allows(count); };
  while (count > 1 && (threads % count != 0 || !std::ranges::all_of(ports_, allow))) --count;
  for (const NodePort& it : ports_) {
    const Steering& steering = it.port->steering();
    const auto level = !steering.allows(threads) ? spdlog::level::warn
                       : threads > 1             ? spdlog::level::info
                                                 : spdlog::level::debug;
    spdlog::log(level, "port {}: {}", it.port->name(), steering.text());
  }
  if (count == threads) return;
  spdlog::warn("node {}: {} worker thread{} instead of {}, because packets cannot be steered to more", config_.rank,
               count, count == 1 ? "" : "s", threads);
  for (unsigned i = count; i < threads; ++i) workers_[i % count]->adopt_wakeups(*workers_[i]);
  workers_.resize(count);
}

void Node::log_numa() const {
  for (size_t i = 0; i < workers_.size() && i < config_.cores.size(); ++i) {
    const int node = numa_node_of(config_.cores[i]);
    for (const NodePort& it : ports_) {
      const int port = it.port->numa_node();
      if (node < 0 || port < 0 || node == port) continue;
      spdlog::warn(
          "port {} is on NUMA node {}, and worker {} on CPU {} of NUMA node {}: choose workers.cores on node {}",
          it.port->name(), port, i, config_.cores[i], node, port);
    }
  }
}

// Warns if packets arrive at queues of other lanes. The ring cannot become ready then.
void Node::look_for_wrong_lanes() {
  for (NodePort& it : ports_) {
    uint64_t packets = 0;
    for (const auto& queue : it.queues) packets += queue->published(QueueCounter::kWrongLane);
    if (packets == 0 || it.wrong_lanes_logged) continue;
    it.wrong_lanes_logged = true;
    spdlog::warn("port {}: packets arrive at queues of other lanes and are dropped: set workers.threads: 1",
                 it.port->name());
  }
}

}  // namespace gradlane
