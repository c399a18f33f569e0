// exchange_fixture.h - functions that run jobs on a simulated network, and a filter that loses chosen packets
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "base/time.h"
#include "collectives/wire.h"
#include "sim/simnet.h"
#include "tests/collectives/exchange/job.h"
#include "tests/thorough.h"

namespace gradlane::test {

// Returns the bytes of the largest tensor of these jobs. With it as max_bytes, an exchange clears no more memory than
// needed.
[[nodiscard]] size_t largest(std::span<const JobSpec> specs, unsigned world);

// Submits the jobs to all nodes in the same order, at most `in_flight` at a time (0: as many as the configuration
// allows). Runs until all have ended, and checks that all succeeded with the right result.
[[nodiscard]] testing::AssertionResult run(SimNet& net, std::span<Job> jobs, Nanos limit = 600 * kSecond,
                                           size_t in_flight = 0);

// Returns whether all submitted operations have ended without a failure.
[[nodiscard]] testing::AssertionResult all_succeeded(const SimNet& net);

// Runs the network until each exchange holds at most one buffer per neighbour, and no buffer is in flight. A
// network is in this state between two keep-alives, after late acknowledgements have arrived.
[[nodiscard]] testing::AssertionResult all_given_back(SimNet& net);

[[nodiscard]] uint64_t retransmits(const SimNet& net);
[[nodiscard]] testing::AssertionResult no_retransmits(const SimNet& net);

// ---- Packets

[[nodiscard]] bool is_data(std::span<const uint8_t> packet);

// The transmissions of one data packet on one link.
struct Target {
  unsigned from;
  unsigned to;
  uint32_t sequence;
  auto operator<=>(const Target&) const = default;
};

// A filter that loses the first transmissions of chosen data packets, and records sequence numbers.
class Dropper {
 public:
  void drop(const Target& target, unsigned times) { drops_[target] = times; }
  // SimNet's filter calls this function. Returns false if the packet is lost.
  [[nodiscard]] bool operator()(unsigned from, unsigned to, std::span<const uint8_t> packet);

  [[nodiscard]] unsigned dropped() const noexcept { return dropped_; }
  [[nodiscard]] bool all_dropped() const;  // whether each packet was lost as often as requested
  // Returns the first and the last sequence number of packets with elements on a link; nullopt if there was none.
  [[nodiscard]] std::optional<std::pair<uint32_t, uint32_t>> seen(unsigned from, unsigned to) const;

 private:
  std::map<Target, unsigned> drops_;
  std::map<std::pair<unsigned, unsigned>, std::pair<uint32_t, uint32_t>> seen_;
  unsigned dropped_ = 0;
};

}  // namespace gradlane::test
