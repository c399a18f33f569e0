// watch.cc - log lines and advice of an accelerator (control thread only)
#include "dataplane/accelerator/watch.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "config/values.h"
#include "dataplane/accelerator/kernel/offloads.h"

namespace gradlane {
namespace {

using State = accel::Peers::State;

std::string silent_text(uint32_t ip) {
  return ip_text(ip) + ": no accelerator answers, so marked traffic is sent uncompressed";
}

std::string blocked_text(uint32_t ip) {
  return ip_text(ip) +
         ": an accelerator answers, but compressed TCP segments do not arrive: something on the way, such as a "
         "firewall that tracks connections, drops them; marked traffic is sent uncompressed for some minutes";
}

}  // namespace

std::string AcceleratorWatch::super_segments() const {
  return fmt::format("{} packets longer than the MTU were dropped; offloads make them: {}", super_segments_.count,
                     offload_advice(config_));
}

std::string AcceleratorWatch::unfinished() const {
  return fmt::format("{} packets from the host came without a checksum, and computing it costs time: {}",
                     unfinished_.count, offload_advice(config_));
}

void AcceleratorWatch::look(const accel::Accelerator& engine, Nanos now) {
  for (const auto& [mishap, counter] : {std::pair{&super_segments_, accel::Counter::kSuperSegment},
                                        std::pair{&unfinished_, accel::Counter::kChecksumFinished}}) {
    const uint64_t count = engine.published(counter);
    if (count != mishap->count) mishap->seen_at = now;
    mishap->count = count;
  }
  if (super_segments_.count != super_segments_.logged && now - super_segments_.logged_at >= kAgain) {
    super_segments_.logged = super_segments_.count;
    super_segments_.logged_at = now;
    spdlog::error("{}", super_segments());
  }
  if (unfinished_.count != 0 && unfinished_.logged == 0) {
    unfinished_.logged = unfinished_.count;
    spdlog::warn("{}", unfinished());
  }
  look_at_peers(engine, now);
  if (now - figures_at_ < kFigures) return;
  figures_at_ = now;
  if (spdlog::should_log(spdlog::level::debug)) log_figures(engine);
}

void AcceleratorWatch::look_at_peers(const accel::Accelerator& engine, Nanos now) {
  std::map<uint32_t, State> peers;
  engine.peers().for_each(now, [&](uint32_t ip, State state, uint64_t, uint64_t, Nanos) {
    const auto before = peers_.find(ip);
    const State logged = before == peers_.end() ? State::kAsked : before->second;
    // A peer that is being asked keeps its logged state, because nothing new is known yet.
    peers[ip] = state == State::kAsked ? logged : state;
    if (peers[ip] == logged) return;
    if (state == State::kSilent) spdlog::warn("{}", silent_text(ip));
    if (state == State::kBlocked) spdlog::warn("{}", blocked_text(ip));
    if (state == State::kAnswers)
      spdlog::info("{}: an accelerator answers, so marked traffic is sent compressed", ip_text(ip));
  });
  peers_.swap(peers);
}

void AcceleratorWatch::log_figures(const accel::Accelerator& engine) const {
  std::string text;
  engine.for_each_published([&text](const CounterValue& each) {
    if (each.value != 0) text += fmt::format(" {} {}", each.name, each.value);
  });
  spdlog::debug("figures:{}", text);
}

std::vector<AcceleratorAdvice> AcceleratorWatch::advice(const accel::Accelerator& engine, Nanos now) const {
  std::vector<AcceleratorAdvice> advice;
  for (std::string& fault : offload_faults(config_)) advice.push_back({"offloads", std::move(fault)});
  if (super_segments_.lately(now)) advice.push_back({"packets", super_segments()});
  if (unfinished_.lately(now)) advice.push_back({"packets", unfinished()});
  engine.peers().for_each(now, [&](uint32_t ip, State state, uint64_t, uint64_t, Nanos ago) {
    if (ago >= accel::Peers::kKept) return;
    if (state == State::kSilent) advice.push_back({"peer", silent_text(ip)});
    if (state == State::kBlocked) advice.push_back({"peer", blocked_text(ip)});
  });
  return advice;
}

}  // namespace gradlane
