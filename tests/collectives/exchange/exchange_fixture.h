// exchange_fixture.h - runs jobs on a simulated network, and loses chosen packets
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

// Bytes of the largest tensor among them: what an exchange needs no more than, as it clears all that it may need.
[[nodiscard]] size_t largest(std::span<const JobSpec> specs, unsigned world);

// Submits the jobs to all nodes in the same order, at most `in_flight` at a time (0: as many as
// their configuration allows), and runs until all have ended; then checks that all succeeded and are right.
[[nodiscard]] testing::AssertionResult run(SimNet& net, std::span<Job> jobs, Nanos limit = 600 * kSecond,
                                           size_t in_flight = 0);

// Whether all that was submitted has ended, and without a failure.
[[nodiscard]] testing::AssertionResult all_succeeded(const SimNet& net);

// No exchange holds a buffer but one per neighbour, and none is on its way: lets late acknowledgements come, between
// keep-alives.
[[nodiscard]] testing::AssertionResult all_given_back(SimNet& net);

[[nodiscard]] uint64_t retransmits(const SimNet& net);
[[nodiscard]] testing::AssertionResult no_retransmits(const SimNet& net);

// ---- Packets

[[nodiscard]] bool is_data(std::span<const uint8_t> packet);

// Transmissions of one data packet on one link.
struct Target {
  unsigned from;
  unsigned to;
  uint32_t sequence;
  auto operator<=>(const Target&) const = default;
};

// A filter that loses the first transmissions of some data packets, and notes what goes by.
class Dropper {
 public:
  void drop(const Target& target, unsigned times) { drops_[target] = times; }
  // To be called by SimNet's filter; false: lost.
  [[nodiscard]] bool operator()(unsigned from, unsigned to, std::span<const uint8_t> packet);

  [[nodiscard]] unsigned dropped() const noexcept { return dropped_; }
  [[nodiscard]] bool all_dropped() const;  // as often as asked for
  // Of packets with elements: the first and the last sequence number on a link; nothing if there was none.
  [[nodiscard]] std::optional<std::pair<uint32_t, uint32_t>> seen(unsigned from, unsigned to) const;

 private:
  std::map<Target, unsigned> drops_;
  std::map<std::pair<unsigned, unsigned>, std::pair<uint32_t, uint32_t>> seen_;
  unsigned dropped_ = 0;
};

}  // namespace gradlane::test
