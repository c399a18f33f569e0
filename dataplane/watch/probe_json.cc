// probe_json.cc - results of probes as JSON, for the admin socket (control thread only)
#include "dataplane/watch/probe_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "config/values.h"

namespace gradlane {
namespace {

using nlohmann::json;

double micros(Nanos time) { return static_cast<double>(time) / 1000.0; }

std::string codec_text(const ProbeIdentity& who) {
  uint32_t digest = 0;
  std::memcpy(&digest, who.arguments, sizeof(who.arguments));
  const auto row = std::ranges::find(codec_table(), static_cast<CodecId>(who.codec), &CodecRow::id);
  if (digest != 0 && row != codec_table().end()) return fmt::format("{} with arguments {:#08x}", row->word, digest);
  const auto codec = find_codec(static_cast<CodecId>(who.codec), who.param, select_isa());
  return codec ? codec->name() : fmt::format("unknown codec {} with parameter {}", who.codec, who.param);
}

json tos_json(const ProbeResult::Tos& tos, size_t number) {
  const auto text = [&tos](uint8_t value) { return tos.answered ? json(fmt::format("{:#04x}", value)) : json(); };
  return {{"class", counter_name(static_cast<TrafficClass>(number))},
          {"sent", fmt::format("{:#04x}", tos.sent)},
          {"there", text(tos.there)},
          {"back", text(tos.back)}};
}

json config_json(const ProbeIdentity& who) {
  return {{"node", unsigned{who.node}},         {"nodes", unsigned{who.nodes}},
          {"mtu", unsigned{who.mtu}},           {"codec", codec_text(who)},
          {"protocol", unsigned{who.protocol}}, {"digest", fmt::format("{:#018x}", uint64_t{who.rank_table})}};
}

json probe_json(const ProbeResult& result, const ProbeIdentity& ours) {
  json tos = json::array();
  for (size_t i = 0; i < kProbedClasses; ++i) tos.push_back(tos_json(result.tos[i], i));
  const bool any = result.rtt_min != 0;
  json theirs = result.theirs ? config_json(*result.theirs) : json();
  return {{"node", result.node},
          {"ip", result.address},
          {"arp", result.arp},
          {"sent", result.sent},
          {"answered", result.answered},
          {"rtt_us", any ? json{{"min", micros(result.rtt_min)}, {"median", micros(result.rtt_median)}} : json()},
          {"mtu_ok", result.tried ? json(result.largest == result.full) : json()},
          {"largest_ok", result.largest},
          {"tos", tos},
          {"digest",
           {{"ours", fmt::format("{:#018x}", uint64_t{ours.rank_table})},
            {"theirs", result.theirs ? theirs["digest"] : json()}}},
          {"config", theirs}};
}

}  // namespace

json probes_json(std::span<const ProbeResult> results, const ProbeIdentity& ours) {
  json all = json::array();
  for (const ProbeResult& result : results) all.push_back(probe_json(result, ours));
  return all;
}

}  // namespace gradlane
