// ports.h - two DPDK ports with one queue each way (only for files of dataplane/loopback; the loopback's one thread)
#pragma once

#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include <array>
#include <cstdint>
#include <string>

#include "config/config.h"
#include "dataplane/device/packet_pool.h"
#include "dataplane/loopback/loopback.h"

namespace gradlane {

inline constexpr size_t kLoopbackPorts = 2;

// Starts EAL and the ports. The destructor stops both.
class LoopbackPorts {
 public:
  explicit LoopbackPorts(const LoopbackConfig& config);
  ~LoopbackPorts();
  LoopbackPorts(const LoopbackPorts&) = delete;
  LoopbackPorts& operator=(const LoopbackPorts&) = delete;

  [[nodiscard]] uint16_t operator[](size_t i) const noexcept { return ids_[i]; }
  [[nodiscard]] PacketPool& pool() noexcept { return *pool_; }

 private:
  void close() noexcept;
  static void make(const PortConfig& config, uint16_t& port);
  void open(size_t i, const std::string& device, size_t mtu);

  std::unique_ptr<PacketPool> pool_;
  std::array<uint16_t, kLoopbackPorts> ids_{};
  size_t opened_ = 0;
};

// The addresses of two imaginary nodes. loopback_flow() returns the flow from one of them to the other.
inline constexpr std::array<LocalAddress, 2> kLoopbackNodes{{
    {{0x02, 0x67, 0x6c, 0, 0, 0}, 0xc0000200, 18400, 1},  // 192.0.2.0 (RFC 5737), and 192.0.2.1 for its neighbour
    {{0x02, 0x67, 0x6c, 0, 0, 1}, 0xc0000201, 18400, 1},
}};
[[nodiscard]] Flow loopback_flow(size_t from, size_t to) noexcept;
inline const Classifier kLoopbackClassifier(0x28, 0x20, 0xc0);  // default ToS values of config.h

// The base class of the modes.
class LoopbackEngine {
 public:
  LoopbackEngine() = default;
  virtual ~LoopbackEngine() = default;
  LoopbackEngine(const LoopbackEngine&) = delete;
  LoopbackEngine& operator=(const LoopbackEngine&) = delete;

  virtual void run(uint64_t end) = 0;  // `end` is a value of the time stamp counter
  virtual void stop() = 0;

  LoopbackFigures figures;

 protected:
  // Calls round(), which polls both ports, until the time stamp counter reaches `end`.
  template <typename Round>
  void repeat(uint64_t end, Round&& round);
  // Takes all packets out of the ports and counts them as left.
  void drain(LoopbackPorts& ports) noexcept;
};

[[nodiscard]] std::unique_ptr<LoopbackEngine> make_loopback_forward(const LoopbackConfig& config);
[[nodiscard]] std::unique_ptr<LoopbackEngine> make_loopback_ring(const LoopbackConfig& config);

void loopback_yield() noexcept;

template <typename Round>
void LoopbackEngine::repeat(uint64_t end, Round&& round) {
  // Reading the counter takes as long as moving five packets, so it is not read in every round.
  constexpr unsigned kRounds = 16;
  uint64_t before = rte_rdtsc();
  do {
    const uint64_t moved = figures.received;
    for (unsigned i = 0; i < kRounds; ++i) round();
    const uint64_t now = rte_rdtsc();
    (figures.received != moved ? figures.busy_cycles : figures.idle_cycles) += now - before;
    before = now;
    if (figures.received == moved) loopback_yield();
  } while (before < end);
}

}  // namespace gradlane
