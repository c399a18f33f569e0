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
    Way& way = ways_.emplace_back();
    way.run = std::make_unique<ProbeRun>(setup, *boards[i]);
    way.path = paths[i];
    way.mtu = setup.mtu;
  }
}

bool PathWatch::due(const Way& way, const NeighbourFacts& facts, Nanos now) const noexcept {
  if (way.run->running() || !facts.up || facts.local || !facts.mac_known) return false;
  const bool waits = facts.waiting_since != 0;
  const bool stalls = waits && now - std::min(facts.waiting_since, now) >= kStalled;
  const bool narrow = way.path->load(std::memory_order_relaxed) != 0;
  if (stalls && way.begun < facts.waiting_since) return true;  // the last run began before the stall
  if (stalls || narrow) return now - way.begun >= kAgain;
  return !waits && !facts.stalls_on_long_frame && now >= way.due;
}

// Stores the result of a run. Returns true if the MTU of the path has changed. A run without answers, or that did not
// find the limit, changes nothing.
bool PathWatch::note(Way& way) noexcept {
  way.asked = false;
  const ProbeResult& result = way.run->result();
  if (!result.sure) return false;
  const auto found = static_cast<uint32_t>(result.largest == result.full ? 0 : result.largest);
  return way.path->exchange(found, std::memory_order_relaxed) != found;
}

std::vector<RingLine> PathWatch::look(unsigned node, std::span<const NeighbourFacts> neighbours, Nanos now) {
  using Level = RingLine::Level;
  std::vector<RingLine> lines;
  for (size_t i = 0; i < std::min(ways_.size(), neighbours.size()); ++i) {
    Way& way = ways_[i];
    if (way.asked && !way.run->running() && note(way)) {
      NeighbourFacts facts = neighbours[i];
      facts.path_bytes = way.path->load(std::memory_order_relaxed);
      const bool narrow = facts.path_bytes != 0;
      const std::string text = narrow ? path_text(facts, way.mtu)
                                      : fmt::format("the path to node {} ({}) takes packets of mtu {} again",
                                                    facts.node, facts.address, way.mtu);
      lines.push_back({narrow ? Level::kError : Level::kInfo, fmt::format("node {}: {}", node, text)});
    }
    if (!due(way, neighbours[i], now)) continue;
    way.run->begin(now, kMost, random_());
    way.asked = true;
    way.begun = now;
    way.due = now + kEvery;
  }
  return lines;
}

bool PathWatch::step(Nanos now) {
  bool posted = false;
  for (const Way& way : ways_) posted |= way.run->step(now);
  return posted;
}

bool PathWatch::running() const noexcept {
  return std::ranges::any_of(ways_, [](const Way& way) { return way.run->running(); });
}

}  // namespace gradlane
