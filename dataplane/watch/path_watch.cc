// path_watch.cc - the times of probes for the MTU of paths, and log lines about it (control thread only)
#include "dataplane/watch/path_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "config/values.h"

namespace gradlane {

PathWatch::PathWatch(const std::vector<ProbeRun::Setup>& setups, const std::vector<ProbeBoard*>& boards,
                     std::vector<std::atomic<uint32_t>*> paths, std::function<uint64_t()> random)
    : random_(std::move(random)) {
  for (size_t i = 0; i < setups.size(); ++i) {
    ProbeRun::Setup setup = setups[i];
    setup.length_only = true;
    Probing& probing = probings_.emplace_back();
    probing.run = std::make_unique<ProbeRun>(setup, *boards[i]);
    probing.path = paths[i];
    probing.mtu = setup.mtu;
  }
}

bool PathWatch::due(const Probing& probing, const NeighbourFacts& facts, Nanos now) const noexcept {
  if (probing.run->running() || !facts.up || facts.local || !facts.mac_known) return false;
  const bool waits = facts.waiting_since != 0;
  const bool stalls = waits && now - std::min(facts.waiting_since, now) >= kStalled;
  const bool narrow = probing.path->load(std::memory_order_relaxed) != 0;
  if (stalls && probing.begun < facts.waiting_since) return true;  // the last run began before the stall
  if (stalls || narrow) return now - probing.begun >= kAgain;
  return !waits && !facts.stalls_on_long_frame && now >= probing.due;
}

// Stores the result of a run. Returns true if the MTU of the path has changed. A run without answers, or that did not
// find the limit, changes nothing.
bool PathWatch::note(Probing& probing) noexcept {
  probing.asked = false;
  const ProbeResult& result = probing.run->result();
  if (!result.sure) return false;
  const auto found = static_cast<uint32_t>(result.largest == result.full ? 0 : result.largest);
  return probing.path->exchange(found, std::memory_order_relaxed) != found;
}

std::vector<RingLine> PathWatch::look(unsigned node, std::span<const NeighbourFacts> neighbours, Nanos now) {
  using Level = RingLine::Level;
  std::vector<RingLine> lines;
  for (size_t i = 0; i < std::min(probings_.size(), neighbours.size()); ++i) {
    Probing& probing = probings_[i];
    if (probing.asked && !probing.run->running() && note(probing)) {
      NeighbourFacts facts = neighbours[i];
      facts.path_bytes = probing.path->load(std::memory_order_relaxed);
      const bool narrow = facts.path_bytes != 0;
      const std::string text = narrow ? path_text(facts, probing.mtu)
                                      : fmt::format("the path to node {} ({}) takes packets of mtu {} again",
                                                    facts.node, facts.address, probing.mtu);
      lines.push_back({narrow ? Level::kError : Level::kInfo, fmt::format("node {}: {}", node, text)});
    }
    if (!due(probing, neighbours[i], now)) continue;
    probing.run->begin(now, kMost, random_());
    probing.asked = true;
    probing.begun = now;
    probing.due = now + kEvery;
  }
  return lines;
}

bool PathWatch::step(Nanos now) {
  bool posted = false;
  for (const Probing& probing : probings_) posted |= probing.run->step(now);
  return posted;
}

bool PathWatch::running() const noexcept {
  return std::ranges::any_of(probings_, [](const Probing& probing) { return probing.run->running(); });
}

}  // namespace gradlane
