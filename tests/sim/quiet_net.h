// quiet_net.h - a simulated network that drops the exchanges' own packets and records those of the test
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "sim/simnet.h"

namespace gradlane::test {

inline std::vector<uint8_t> packet_of(size_t bytes, uint8_t number = 0) {
  constexpr uint8_t kMark = 0xee;  // not a magic number of the protocol
  std::vector<uint8_t> packet(bytes, number);
  if (!packet.empty()) packet.front() = kMark;
  return packet;
}

struct Delivery {
  Nanos time;
  unsigned from;
  unsigned to;
  uint8_t number;
  bool operator==(const Delivery&) const = default;
};

class QuietNet {
 public:
  explicit QuietNet(const SimConfig& config) : net(config) {
    net.set_filter(
        [](unsigned, unsigned, std::span<const uint8_t> packet) { return packet[0] == packet_of(1).front(); });
    net.set_tap([this](unsigned from, unsigned to, std::span<const uint8_t> packet) {
      deliveries.push_back({net.now(), from, to, packet.back()});
    });
  }
  bool try_send(unsigned from, unsigned to, uint8_t number, size_t bytes = 934) {
    const Packet packet = net.node(from).allocate();
    std::ranges::copy(packet_of(bytes, number), packet.data);
    const bool sent = net.node(from).transmit(to, packet, bytes);
    std::fill_n(packet.data, bytes, uint8_t{0});  // SimNet has its own copy
    net.node(from).release(packet);
    return sent;
  }
  void send(unsigned from, unsigned to, uint8_t number, size_t bytes = 934) {
    EXPECT_TRUE(try_send(from, to, number, bytes));
  }

  SimNet net;
  std::vector<Delivery> deliveries;
};

inline SimConfig small(unsigned nodes) {
  SimConfig config;
  config.nodes = nodes;
  config.link = {.bits_per_second = 8'000'000'000, .delay = 500};  // 934 bytes take 1000 ns
  return config;
}

// An all-reduce of whole numbers, whose sum over 256 ranks is exact in any order.
struct WholeNumbers {
  WholeNumbers(unsigned nodes, size_t count) : tensors(nodes, std::vector<float>(count)) {
    for (unsigned rank = 0; rank < nodes; ++rank) {
      for (size_t i = 0; i < count; ++i) tensors[rank][i] = static_cast<float>(rank * 100 + i % 997);
    }
  }
  void submit(SimNet& net) {
    for (unsigned rank = 0; rank < tensors.size(); ++rank) net.submit(rank, operation(rank));
  }
  Operation operation(unsigned rank) {
    Operation operation;
    operation.count = tensors[rank].size();
    operation.data = tensors[rank].data();
    return operation;
  }
  [[nodiscard]] bool right() const {
    const size_t p = tensors.size();
    for (const std::vector<float>& tensor : tensors) {
      for (size_t i = 0; i < tensor.size(); ++i) {
        if (tensor[i] != static_cast<float>(100 * (p * (p - 1) / 2) + p * (i % 997))) return false;
      }
    }
    return true;
  }

  std::vector<std::vector<float>> tensors;
};

inline SimConfig raw(unsigned nodes, uint64_t seed = 1) {
  SimConfig config;
  config.nodes = nodes;
  config.seed = seed;
  config.exchange.codec = find_codec("raw");
  return config;
}

// The traces of two runs are equal if the runs had the same packets at the same times. A trace is a hash of these, the
// end of the run, and its counters.
struct Trace {
  uint64_t hash = 0;
  Nanos end = 0;
  LinkStats stats;
};

// Runs an all-reduce on a network that loses, duplicates, reorders and corrupts packets. Returns its trace.
inline Trace trace_of(SimConfig config) {
  config.faults = {.loss = 0.01, .duplicate = 0.01, .reorder = 0.01, .corrupt = 0.01, .busy = 0.01};
  SimNet net(config);
  Trace trace;
  const auto add = [&trace](uint64_t value) { trace.hash = Random::mix(trace.hash + 1, value); };
  net.set_tap([&](unsigned from, unsigned to, std::span<const uint8_t> packet) {
    add(net.now());
    add(uint64_t{from} << 32 | to);
    for (const uint8_t byte : packet) add(byte);
  });
  WholeNumbers job(config.nodes, 20000);
  job.submit(net);
  EXPECT_TRUE(net.run_until_idle(10 * kSecond));
  EXPECT_TRUE(job.right());
  trace.end = net.now();
  trace.stats = net.stats();
  return trace;
}

}  // namespace gradlane::test
