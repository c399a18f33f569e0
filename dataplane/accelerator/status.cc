// status.cc - an accelerator's figures as JSON (pure functions)
#include "dataplane/accelerator/status.h"

#include <nlohmann/json.hpp>

namespace gradlane {
namespace {

using nlohmann::json;

json config_json(const AcceleratorConfig& config) {
  return {{"file", config.file},
          {"host", config.host.device},
          {"wire", config.wire.device},
          {"superpackets", config.superpackets},
          {"codec", config.codec.name()},
          {"mtu", config.mtu},
          {"repack", config.repack},
          {"hold_us", static_cast<double>(config.repack_hold) / kMicrosecond},
          {"tos_compressed", config.tos_compressed},
          {"tos_wire", config.tos_wire},
          {"udp_port", config.udp_port}};
}

json counters_json(const std::vector<CounterValue>& values) {
  json counters = json::object();
  for (const CounterValue& each : values) counters[each.name] = each.value;
  return counters;
}

json side_json(const SideFigures& side) {
  json document = counters_json(side.counters);
  document["device"] = side.device;
  document["missed"] = side.missed;
  document["superpackets_received"] = side.superpackets.received;
  document["superpackets_sent"] = side.superpackets.sent;
  document["link_up"] = side.link_up;
  return document;
}

json peers_json(const std::vector<PeerFigures>& peers) {
  json list = json::array();
  for (const PeerFigures& peer : peers) {
    list.push_back({{"ip", peer.ip},
                    {"state", peer.state},
                    {"compressed_packets", peer.compressed},
                    {"uncompressed_packets", peer.uncompressed},
                    {"used_s_ago", peer.used_s_ago}});
  }
  return list;
}

json streams_json(const CounterSet<accel::StreamFigure>& streams) {
  using accel::StreamFigure;
  return {{"tracked", streams[StreamFigure::kTracked]},
          {"most", streams[StreamFigure::kMost]},
          {"records", streams[StreamFigure::kRecords]},
          {"record_bytes", streams[StreamFigure::kRecordMemory]}};
}

}  // namespace

json accelerator_json(const AcceleratorFigures& figures) {
  json advice = json::array();
  json about = json::array();
  for (const AcceleratorAdvice& it : figures.advice) {
    advice.push_back(it.text);
    about.push_back(it.about);
  }
  return {{"mode", "accelerator"},
          {"version", figures.process.version},
          {"uptime_s", figures.process.uptime_s},
          {"pid", figures.process.pid},
          {"config", config_json(figures.config)},
          {"ports", {{"host", side_json(figures.host)}, {"wire", side_json(figures.wire)}}},
          {"counters", counters_json(figures.counters)},
          {"streams", streams_json(figures.streams)},
          {"peers", peers_json(figures.peers)},
          {"kernel", {{"kept_off", figures.kernel_kept_off}, {"bypass", figures.bypass_in_place}}},
          {"advice", std::move(advice)},
          {"advice_about", std::move(about)}};
}

}  // namespace gradlane
