// exchange_fixture.cc - functions that run jobs on a simulated network, and a filter that loses chosen packets
#include "tests/collectives/exchange/exchange_fixture.h"

#include <algorithm>
#include <vector>

namespace gradlane::test {

// ---- Running

size_t largest(std::span<const JobSpec> specs, unsigned world) {
  size_t most = 128;  // a granule, which is always allowed
  for (const JobSpec& spec : specs) {
    most = std::max(most, spec.count * element_bytes(spec.type) * (has_shares(spec.kind) ? world : 1));
  }
  return most;
}

testing::AssertionResult run(SimNet& net, std::span<Job> jobs, Nanos limit, size_t in_flight) {
  const unsigned world = net.nodes();
  if (in_flight == 0) in_flight = net.config().exchange.operations;
  for (size_t next = 0; next < jobs.size();) {
    const size_t end = std::min(jobs.size(), next + in_flight);
    for (; next < end; ++next) {
      for (unsigned i = 0; i < world; ++i) (void)net.submit(i, jobs[next].operation(i));
    }
    if (!net.run_until_idle(limit)) {
      return testing::AssertionFailure() << "not done at " << net.now() << " ns, world " << world << ", jobs from "
                                         << jobs[next - 1].spec();
    }
  }
  if (auto result = all_succeeded(net); !result) return result;
  for (const Job& job : jobs) {
    if (auto result = job.right(); !result) return result;
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult all_succeeded(const SimNet& net) {
  for (unsigned i = 0; i < net.nodes(); ++i) {
    const auto completions = net.node(i).completions();
    if (completions.size() != net.node(i).submitted()) return testing::AssertionFailure() << "completions are missing";
    for (const SimCompletion& each : completions) {
      if (!each.failure) continue;
      return testing::AssertionFailure() << "operation " << each.id << " on rank " << i << " of " << net.nodes() << ": "
                                         << failure_text(each.failure) << ", at " << each.time << " ns";
    }
  }
  return testing::AssertionSuccess();
}

testing::AssertionResult all_given_back(SimNet& net) {
  // Each exchange keeps one buffer per neighbour, for acknowledgements.
  const auto idle = [&net] {
    size_t held = 0;
    for (unsigned i = 0; i < net.nodes(); ++i) {
      const SimNode& node = net.node(i);
      if (node.buffers_held() > node.exchange().neighbours().size()) return false;
      held += node.buffers_held();
    }
    return net.buffers_taken() == held;
  };
  if (net.run_until(idle, net.now() + 60 * kSecond)) return testing::AssertionSuccess();
  auto failure = testing::AssertionFailure() << net.buffers_taken() << " buffers taken; held by nodes:";
  for (unsigned i = 0; i < net.nodes(); ++i) failure << " " << net.node(i).buffers_held();
  return failure;
}

uint64_t retransmits(const SimNet& net) {
  return net.count(Counter::kRetransmitTimeout) + net.count(Counter::kRetransmitSack);
}

testing::AssertionResult no_retransmits(const SimNet& net) {
  if (retransmits(net) == 0) return testing::AssertionSuccess();
  return testing::AssertionFailure() << net.count(Counter::kRetransmitTimeout) << " retransmissions by time-out, "
                                     << net.count(Counter::kRetransmitSack) << " by SACK";
}

// ---- Packets

bool is_data(std::span<const uint8_t> packet) {
  return packet.size() >= sizeof(LinkHeader) && load<LinkHeader>(packet.data()).kind == PacketKind::kData;
}

bool Dropper::operator()(unsigned from, unsigned to, std::span<const uint8_t> packet) {
  if (!is_data(packet) || packet.size() < sizeof(LinkHeader) + sizeof(RunHeader)) return true;
  const uint32_t sequence = load<LinkHeader>(packet.data()).sequence;
  const Phase phase = load<RunHeader>(packet.data() + sizeof(LinkHeader)).phase;
  if (phase == Phase::kReduce || phase == Phase::kGather) {
    const auto [place, inserted] = seen_.try_emplace({from, to}, sequence, sequence);
    place->second.second = std::max(place->second.second, sequence);
  }
  const auto drop = drops_.find({from, to, sequence});
  if (drop == drops_.end() || drop->second == 0) return true;
  --drop->second;
  ++dropped_;
  return false;
}

bool Dropper::all_dropped() const {
  return std::all_of(drops_.begin(), drops_.end(), [](const auto& each) { return each.second == 0; });
}

std::optional<std::pair<uint32_t, uint32_t>> Dropper::seen(unsigned from, unsigned to) const {
  const auto place = seen_.find({from, to});
  if (place == seen_.end()) return std::nullopt;
  return place->second;
}

}  // namespace gradlane::test
