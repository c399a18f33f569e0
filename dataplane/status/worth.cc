// worth.cc - what compression has brought a job, from a node's figures, and in words (pure functions)
#include "dataplane/status/worth.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>

namespace gradlane {
namespace {

constexpr double kFloatBytes = 4;
constexpr double kNoLimit = 0.05;  // of the time that a link is full: less says nothing of its rate
constexpr double kNs = 1e-9;

double counter_of(const RankFigures& rank, std::string_view name) {
  const auto found = std::ranges::find_if(rank.counters, [name](const CounterValue& it) { return it.name == name; });
  return found == rank.counters.end() ? 0 : static_cast<double>(found->value);
}

// Of the same codec with another B, if not of this one.
const CodecCost* cost_of(const Calibration& figures, const std::string& word) {
  const auto same = [&word](const CodecCost& it) {
    return std::string_view(it.name).substr(0, it.name.find(':')) == word.substr(0, word.find(','));
  };
  const auto found = std::ranges::find_if(figures.codecs, same);
  return found == figures.codecs.end() ? nullptr : &*found;
}

// Of what a rank sends half goes towards sums and half are results. An element of a sum is merged, or encoded here and
// decoded by its owner; one of a result is decoded by who gets it.
double ns_of_sent(const CodecCost& cost) {
  const double sum = cost.owners ? cost.encode_ns + cost.decode_ns : cost.merge_ns;
  return (sum + cost.decode_ns + cost.look_ns + cost.place_ns) / 2;
}

CodecFigures since(const CodecFigures& now, const RankFigures* before) {
  CodecFigures since = now;
  if (before == nullptr) return since;
  const auto old = std::ranges::find(before->codecs, now.id, &CodecFigures::id);
  if (old == before->codecs.end()) return since;
  since.element_bytes -= old->element_bytes;
  since.run_bytes -= old->run_bytes;
  return since;
}

// Each packet that is sent is also one that somebody gets.
double ns_of_packet(const PacketCost& packets) {
  return packets.send_ns + packets.receive_ns + 2 * packets.call_ns / std::max(packets.per_call, 1.0) +
         (packets.reduce_ns + packets.gather_ns) / 2;
}

// Workers do packets and codecs; of codecs that have no figures, what is left is theirs.
double unexplained(const Worth& worth, const Calibration& figures) {
  const CodecCost* const raw = figures.find("raw");
  const double elements = worth.raw_bytes / kFloatBytes * (raw == nullptr ? 0 : ns_of_sent(*raw)) * kNs;
  const double packets = worth.sent_bytes / figures.packets.payload * ns_of_packet(figures.packets) * kNs;
  return std::max(worth.busy - elements - packets, 0.0);
}

// CPU seconds beyond raw's.
double codec_time(const CodecFigures& sent, const Calibration& figures) {
  const CodecCost* const raw = figures.find("raw");
  const CodecCost* const cost = cost_of(figures, sent.word);
  if (raw == nullptr) return 0;
  if (cost == nullptr) return std::numeric_limits<double>::infinity();
  const double elements = static_cast<double>(sent.element_bytes) / kFloatBytes;
  const double packets = static_cast<double>(sent.run_bytes) / figures.packets.payload;
  const double ns = elements * (ns_of_sent(*cost) - ns_of_sent(*raw)) + packets / 2 * cost->packet_ns;
  return std::max(ns, 0.0) * kNs;
}

// One rank on one lane.
void add_lane(Worth& worth, const RankFigures& now, const RankFigures* before, const Calibration& figures) {
  const auto counted = [&](const char* name) {
    return counter_of(now, name) - (before == nullptr ? 0 : counter_of(*before, name));
  };
  const double raw = counted("element_bytes");
  const double sent = counted("run_bytes");
  worth.raw_bytes += raw;
  worth.sent_bytes += sent;
  worth.exchange = std::max(worth.exchange, counted("exchange_ns") * kNs);
  worth.packets += (raw - sent) / figures.packets.payload * ns_of_packet(figures.packets) * kNs;
  for (const CodecFigures& each : now.codecs) {
    const CodecFigures it = since(each, before);
    if (it.id == kNoCodec || it.element_bytes == 0) continue;
    worth.codec += codec_time(it, figures);
    if (std::ranges::find(worth.codecs, it.word) == worth.codecs.end()) worth.codecs.push_back(it.word);
  }
  for (size_t i = 0; i < now.links.size(); ++i) {
    const LinkFigures* const old = before != nullptr && i < before->links.size() ? &before->links[i] : nullptr;
    const double full = (now.links[i].full_us - (old == nullptr ? 0 : old->full_us)) / 1e6;
    if (full <= worth.full || sent <= 0) continue;
    const double bytes = static_cast<double>(now.links[i].bytes - (old == nullptr ? 0 : old->bytes));
    worth.full = full;
    worth.rate = bytes / full;
    worth.longer = raw / sent - 1;  // for each second, so far
  }
}

std::string bytes_text(double bytes) {
  if (bytes >= 1e9) return fmt::format("{:.3g} GB", bytes / 1e9);
  return bytes >= 1e6 ? fmt::format("{:.3g} MB", bytes / 1e6) : fmt::format("{:.3g} kB", bytes / 1e3);
}

std::string seconds_text(double seconds) {
  if (seconds >= 100) return fmt::format("{:.0f} s", seconds);
  return seconds >= 1 ? fmt::format("{:.3g} s", seconds) : fmt::format("{:.3g} ms", seconds * 1e3);
}

std::string rate_text(double bytes_per_s) {
  const double mbps = bytes_per_s * 8 / 1e6;
  return mbps >= 1000 ? fmt::format("{:.3g} Gb/s", mbps / 1000) : fmt::format("{:.3g} Mb/s", mbps);
}

std::string bytes_line(const Worth& worth) {
  const std::string both =
      fmt::format("elements sent: {} raw, {} on the links", bytes_text(worth.raw_bytes), bytes_text(worth.sent_bytes));
  if (worth.codecs.empty()) return both + ": nothing was compressed";
  const double ratio = worth.raw_bytes / std::max(worth.sent_bytes, 1.0);
  const std::string change =
      ratio >= 1 ? fmt::format("{:.3g} times fewer", ratio) : fmt::format("{:.3g} % more", 100 / ratio - 100);
  return fmt::format("{}: {} ({})", both, change, fmt::join(worth.codecs, ", "));
}

std::string time_line(const Worth& worth, std::optional<double> hidden) {
  std::string line = fmt::format("in exchange: {}", seconds_text(worth.exchange));
  if (hidden && worth.exchange > 0) {
    const double share = std::clamp(*hidden / worth.exchange, 0.0, 1.0);
    line += fmt::format(", about {:.0f} % of it hidden behind computing", 100 * share);
  }
  return line + fmt::format("; links held it up for {}, workers were busy for {}", seconds_text(worth.full),
                            seconds_text(worth.busy));
}

std::string longer_line(const Worth& worth) {
  if (worth.codecs.empty()) return "uncompressed: that is what it was";
  if (worth.full < kNoLimit * worth.exchange)
    return "uncompressed: about as long, as links were not what was waited for";
  const double all = worth.exchange + worth.longer;
  return fmt::format("uncompressed, at the {} that the link carried: about {}, {} {}", rate_text(worth.rate),
                     seconds_text(all), seconds_text(std::abs(worth.longer)), worth.longer >= 0 ? "longer" : "less");
}

// What was chosen by measuring is known to be the fastest.
bool loses(const Worth& worth) {
  return !worth.codecs.empty() && !worth.chosen && worth.codec > worth.longer + worth.packets;
}

std::string warning_line(const Worth& worth) {
  const double saved = worth.longer + worth.packets;
  const std::string what =
      saved > 0 ? fmt::format("and saved about {}", seconds_text(saved)) : std::string("and bytes did not get fewer");
  return fmt::format(
      "WARNING: compression cost more than it saved: {} took about {} of CPU time, {}; try "
      "`codec: raw`, or auto:2^-10, which measures (docs/when-it-pays.md)",
      fmt::join(worth.codecs, ", "), seconds_text(worth.codec), what);
}

}  // namespace

Worth worth_of(const NodeFigures& now, const NodeFigures* before, const Calibration& figures) {
  Worth worth;
  for (size_t i = 0; i < now.ranks.size(); ++i) {
    add_lane(worth, now.ranks[i], before != nullptr && i < before->ranks.size() ? &before->ranks[i] : nullptr, figures);
  }
  for (size_t i = 0; i < now.workers.size(); ++i) {
    const double old = before != nullptr && i < before->workers.size() ? before->workers[i].busy_us : 0;
    worth.busy = std::max(worth.busy, (now.workers[i].busy_us - old) / 1e6);
  }
  worth.full = std::max(worth.full - worth.busy, 0.0);
  worth.longer *= worth.full;
  worth.codec = std::isinf(worth.codec) ? unexplained(worth, figures) : std::min(worth.codec, worth.busy);
  // Trainers that have gone took their reports with them.
  worth.chosen = now.codec.starts_with("auto") ||
                 std::ranges::any_of(now.plan, [](const PlanFigures& it) { return !it.exact && it.measured > 0; });
  return worth;
}

Worth worth_of_all(std::span<const Worth> nodes) {
  Worth all;
  for (const Worth& it : nodes) {
    all.raw_bytes += it.raw_bytes;
    all.sent_bytes += it.sent_bytes;
    all.exchange = std::max(all.exchange, it.exchange);
    all.busy = std::max(all.busy, it.busy);
    if (it.full > all.full) {
      all.full = it.full;
      all.rate = it.rate;
      all.longer = it.longer;
    }
    // Nodes work side by side.
    all.packets = std::max(all.packets, it.packets);
    all.codec = std::max(all.codec, it.codec);
    for (const std::string& codec : it.codecs) {
      if (std::ranges::find(all.codecs, codec) == all.codecs.end()) all.codecs.push_back(codec);
    }
    all.chosen = all.chosen || it.chosen;
  }
  return all;
}

std::vector<std::string> worth_lines(const Worth& worth, std::optional<double> hidden) {
  if (worth.raw_bytes <= 0) return {};
  std::vector<std::string> lines = {bytes_line(worth), time_line(worth, hidden), longer_line(worth)};
  if (loses(worth)) lines.push_back(warning_line(worth));
  return lines;
}

nlohmann::json worth_json(const Worth& worth) {
  return {{"raw_bytes", worth.raw_bytes}, {"sent_bytes", worth.sent_bytes}, {"exchange_s", worth.exchange},
          {"busy_s", worth.busy},         {"full_s", worth.full},           {"full_bytes_per_s", worth.rate},
          {"longer_s", worth.longer},     {"packets_s", worth.packets},     {"codec_s", worth.codec},
          {"codecs", worth.codecs},       {"chosen", worth.chosen}};
}

Worth worth_from(const nlohmann::json& document) {
  Worth worth;
  if (!document.is_object()) return worth;
  const auto number = [&document](const char* name) {
    const auto found = document.find(name);
    return found != document.end() && found->is_number() ? found->get<double>() : 0.0;
  };
  worth.raw_bytes = number("raw_bytes");
  worth.sent_bytes = number("sent_bytes");
  worth.exchange = number("exchange_s");
  worth.busy = number("busy_s");
  worth.full = number("full_s");
  worth.rate = number("full_bytes_per_s");
  worth.longer = number("longer_s");
  worth.packets = number("packets_s");
  worth.codec = number("codec_s");
  if (const auto codecs = document.find("codecs"); codecs != document.end() && codecs->is_array()) {
    for (const nlohmann::json& each : *codecs) {
      if (each.is_string()) worth.codecs.push_back(each.get<std::string>());
    }
  }
  const auto chosen = document.find("chosen");
  worth.chosen = chosen != document.end() && *chosen == true;
  return worth;
}

}  // namespace gradlane
