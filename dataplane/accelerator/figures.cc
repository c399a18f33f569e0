// figures.cc - collection of an accelerator's figures (control thread only)
#include "dataplane/accelerator/figures.h"

#include <utility>

#include "config/values.h"
#include "dataplane/device/eal.h"

namespace gradlane {
namespace {

const char* state_name(accel::Peers::State state) {
  using PeerState = accel::Peers::State;
  switch (state) {
    case PeerState::kAnswers:
      return "answers";
    case PeerState::kSilent:
      return "silent";
    case PeerState::kBlocked:
      return "blocked";
    case PeerState::kAsked:
      break;
  }
  return "asked";
}

SideFigures side_figures(const Port& port, const AcceleratorQueue& queue) {
  SideFigures figures{.device = port.device(),
                      .missed = port.missed(),
                      .superpackets = port.superpackets(),
                      .link_up = port.started() && port.link_up(),
                      .counters = {}};
  queue.published().for_each([&figures](const CounterValue& each) { figures.counters.push_back(each); });
  return figures;
}

std::vector<PeerFigures> peer_figures(const accel::Peers& peers, Nanos now) {
  std::vector<PeerFigures> figures;
  peers.for_each(now, [&](uint32_t ip, accel::Peers::State state, uint64_t compressed, uint64_t uncompressed,
                          Nanos ago) {
    // The worker may have read the clock a little later.
    const Nanos used = ago > now ? 0 : ago;
    figures.push_back({ip_text(ip), state_name(state), compressed, uncompressed, static_cast<double>(used) / kSecond});
  });
  return figures;
}

// Returns all advice. A fault of the kernel's tables comes first, because nothing else matters more.
std::vector<AcceleratorAdvice> advice_of(const AcceleratorParts& parts, Nanos now) {
  std::vector<AcceleratorAdvice> advice;
  if (std::string fault = parts.hold.fault(); !fault.empty()) advice.push_back({"kernel", std::move(fault)});
  for (AcceleratorAdvice& each : parts.watch.advice(parts.worker.engine(), now)) advice.push_back(std::move(each));
  return advice;
}

}  // namespace

AcceleratorFigures accelerator_figures(const AcceleratorParts& parts) {
  const Nanos now = clock_now();
  const accel::Accelerator& engine = parts.worker.engine();
  AcceleratorFigures figures{.process = process_figures(parts.process),
                             .config = parts.config,
                             .host = side_figures(parts.host, parts.worker.host()),
                             .wire = side_figures(parts.wire, parts.worker.wire()),
                             .counters = {},
                             .streams = {},
                             .peers = peer_figures(engine.peers(), now),
                             .kernel_kept_off = parts.hold.kernel_kept_off(),
                             .bypass_in_place = parts.hold.bypass_in_place(),
                             .advice = advice_of(parts, now)};
  engine.for_each_published([&figures](const CounterValue& each) { figures.counters.push_back(each); });
  for_each_counter<accel::StreamFigure>(
      [&](const auto& row) { figures.streams.set(row.counter, engine.published(row.counter)); });
  return figures;
}

}  // namespace gradlane
