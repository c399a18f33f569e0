// status.cc - what an accelerator looks like from outside (control thread only)
#include "dataplane/accelerator/status.h"

#include <unistd.h>

#include <nlohmann/json.hpp>

#include "config/values.h"
#include "dataplane/device/eal.h"

namespace gradlane {
namespace {

using nlohmann::json;

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

json config_json(const AcceleratorConfig& config) {
  return {{"file", config.file},
          {"host", config.host.device},
          {"wire", config.wire.device},
          {"codec", config.codec.name()},
          {"mtu", config.mtu},
          {"repack", config.repack},
          {"hold_us", static_cast<double>(config.repack_hold) / kMicrosecond},
          {"tos_compressed", config.tos_compressed},
          {"tos_wire", config.tos_wire},
          {"udp_port", config.udp_port}};
}

template <class Counted>
json counters_json(const Counted& counted) {
  json counters = json::object();
  counted.for_each_published([&counters](const char* name, uint64_t value) { counters[name] = value; });
  return counters;
}

json port_json(const Port& port, const AcceleratorQueue& queue) {
  json document = counters_json(queue);
  document["device"] = port.device();
  document["missed"] = port.missed();
  document["link_up"] = port.started() && port.link_up();
  return document;
}

json peers_json(const accel::Peers& peers) {
  json list = json::array();
  const Nanos now = clock_now();
  peers.for_each(now,
                 [&](uint32_t ip, accel::Peers::State state, uint64_t compressed, uint64_t uncompressed, Nanos ago) {
                   // The worker may have looked at the clock a little later.
                   const Nanos used = ago > now ? 0 : ago;
                   list.push_back({{"ip", ip_text(ip)},
                                   {"state", state_name(state)},
                                   {"compressed_packets", compressed},
                                   {"uncompressed_packets", uncompressed},
                                   {"used_s_ago", static_cast<double>(used) / kSecond}});
                 });
  return list;
}

json streams_json(const json& counters) {
  return {{"tracked", counters.at("stream_tracked")},
          {"most", counters.at("stream_most")},
          {"records", counters.at("stream_records")},
          {"record_bytes", counters.at("stream_record_bytes")}};
}

// What the kernel does beside it first: nothing else matters more.
json advice_json(const AcceleratorParts& parts) {
  json advice = json::array();
  if (std::string fault = parts.hold.fault(); !fault.empty()) advice.push_back(std::move(fault));
  for (std::string& each : parts.watch.advice(parts.worker.engine(), clock_now())) advice.push_back(std::move(each));
  return advice;
}

}  // namespace

json accelerator_json(const AcceleratorParts& parts) {
  const std::chrono::duration<double> uptime = AdminSocket::Clock::now() - parts.process.started;
  const accel::Accelerator& engine = parts.worker.engine();
  const json counters = counters_json(engine);
  return {
      {"mode", "accelerator"},
      {"version", parts.process.version},
      {"uptime_s", uptime.count()},
      {"pid", getpid()},
      {"config", config_json(parts.config)},
      {"ports",
       {{"host", port_json(parts.host, parts.worker.host())}, {"wire", port_json(parts.wire, parts.worker.wire())}}},
      {"counters", counters},
      {"streams", streams_json(counters)},
      {"peers", peers_json(engine.peers())},
      {"kernel", {{"kept_off", parts.hold.kernel_kept_off()}, {"bypass", parts.hold.bypass_in_place()}}},
      {"advice", advice_json(parts)}};
}

AdminAnswer answer_accelerator_admin(const AcceleratorParts& parts, const std::string& request) {
  if (request != "stats") return {admin_error("unknown request; allowed: stats"), {}};
  // Device names are whatever stands in the configuration.
  return {accelerator_json(parts).dump(-1, ' ', true, json::error_handler_t::replace), {}};
}

}  // namespace gradlane
