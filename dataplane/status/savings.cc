// savings.cc - the benefit of compression for a job, from a node's figures, and in words (pure functions)
#include "dataplane/status/savings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <string_view>

namespace gradlane {
namespace {

constexpr double kFloatBytes = 4;
constexpr double kNs = 1e-9;
constexpr double kRateTime = 0.01;  // seconds that a link must be full to show what it can carry
constexpr double kRateBytes = 1e5;  // bytes that it must carry in that time
constexpr double kAlike = 0.02;     // share of the time in exchange: estimates that differ by less count as equal
constexpr double kMuch = 0.05;      // share of the time in exchange: CPU time of codecs that is worth a warning
// least raw bytes of a job for a warning that compression added bytes; smaller jobs are mostly headers
constexpr double kMinReported = 1e6;
constexpr double kClearly = 1.5;  // least ratio of codec time to saved time for a warning

double counter_of(const RankFigures& rank, std::string_view name) {
  const auto found = std::ranges::find_if(rank.counters, [name](const CounterValue& it) { return it.name == name; });
  return found == rank.counters.end() ? 0 : static_cast<double>(found->value);
}

// Returns the family of a codec: "fixed" for "fixed:10,stochastic", "fixed:rel" for "fixed:rel=8".
std::string family_of(std::string_view name) {
  const std::string_view head = name.substr(0, name.find_first_of(":,"));
  return std::string(head) + (name.find(":rel") == std::string_view::npos ? "" : ":rel");
}

// Returns the cost of this codec, or of the same codec with another B; null: there are no figures.
const CodecCost* cost_of(const Calibration& figures, const std::string& word) {
  const auto same = [family = family_of(word)](const CodecCost& it) { return family_of(it.name) == family; };
  const auto found = std::ranges::find_if(figures.codecs, same);
  return found == figures.codecs.end() ? nullptr : &*found;
}

// Returns the CPU time per element that a rank sends. Half of the elements go towards sums, and half are results. An
// element of a sum is merged, or encoded here and decoded by its owner. An element of a result is decoded by the rank
// that gets it.
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

// Returns the CPU time per packet. Each packet that is sent is also received by some rank.
double ns_of_packet(const PacketCost& packets) {
  return packets.send_ns + packets.receive_ns + 2 * packets.call_ns / std::max(packets.per_call, 1.0) +
         (packets.reduce_ns + packets.gather_ns) / 2;
}

// Returns the busy time of workers that packets and raw elements do not explain. Codecs without figures must have taken
// it.
double unexplained(const Savings& savings, const Calibration& figures) {
  const CodecCost* const raw = figures.find("raw");
  const double elements = savings.raw_bytes / kFloatBytes * (raw == nullptr ? 0 : ns_of_sent(*raw)) * kNs;
  const double packets = savings.sent_bytes / figures.packets.payload * ns_of_packet(figures.packets) * kNs;
  return std::max(savings.busy - elements - packets, 0.0);
}

// Returns the CPU seconds of a codec beyond those of raw; none if there are no figures of it.
std::optional<double> codec_time(const CodecFigures& sent, const Calibration& figures) {
  const CodecCost* const raw = figures.find("raw");
  const CodecCost* const cost = cost_of(figures, sent.word);
  if (raw == nullptr) return 0.0;
  if (cost == nullptr) return std::nullopt;
  const double elements = static_cast<double>(sent.element_bytes) / kFloatBytes;
  const double packets = static_cast<double>(sent.run_bytes) / figures.packets.payload;
  const double ns = elements * (ns_of_sent(*cost) - ns_of_sent(*raw)) + packets / 2 * cost->packet_ns;
  return std::max(ns, 0.0) * kNs;
}

// Adds a link if it would take longest without codecs. `ratio`: raw bytes divided by sent bytes.
void add_link(Savings& savings, const LinkFigures& now, const LinkFigures& before, double ratio) {
  const double full = (now.full_us - before.full_us) / 1e6;
  const auto carried = static_cast<double>(now.full_bytes - before.full_bytes);
  if (full < kRateTime || carried < kRateBytes) {
    if (savings.rate == 0) savings.full = std::max(savings.full, full);
    return;
  }
  const double raw_link = static_cast<double>(now.bytes - before.bytes) * ratio / (carried / full);
  if (raw_link <= savings.raw_link) return;
  savings.full = full;
  savings.rate = carried / full;
  savings.raw_link = raw_link;
}

// Adds one rank on one lane. `unknown` counts the bytes of elements that went through codecs without figures.
void add_lane(Savings& savings, double& unknown, const RankFigures& now, const RankFigures* before,
              const Calibration& figures) {
  const auto counted = [&](const char* name) {
    return counter_of(now, name) - (before == nullptr ? 0 : counter_of(*before, name));
  };
  const double raw = counted("element_bytes");
  const double sent = counted("run_bytes");
  savings.raw_bytes += raw;
  savings.sent_bytes += sent;
  savings.exchange = std::max(savings.exchange, counted("exchange_ns") * kNs);
  savings.packets += (raw - sent) / figures.packets.payload * ns_of_packet(figures.packets) * kNs;
  for (const CodecFigures& each : now.codecs) {
    const CodecFigures it = since(each, before);
    if (it.id == kNoCodec || it.element_bytes == 0) continue;
    const std::optional<double> time = codec_time(it, figures);
    if (time) {
      savings.codec += *time;
    } else {
      unknown += static_cast<double>(it.element_bytes);
    }
    if (std::ranges::find(savings.codecs, it.word) == savings.codecs.end()) savings.codecs.push_back(it.word);
  }
  for (size_t i = 0; i < now.links.size() && sent > 0; ++i) {
    static const LinkFigures nothing;
    const LinkFigures& old = before != nullptr && i < before->links.size() ? before->links[i] : nothing;
    add_link(savings, now.links[i], old, raw / sent);
  }
}

// Returns a number with three digits, or with all digits before the point if these are more.
std::string digits_text(double value) {
  return value >= 99.95 ? fmt::format("{:.0f}", value) : fmt::format("{:.3g}", value);
}

// Returns a value in the largest unit in which it is 1 or more. Each unit is 1000 times the one before.
std::string in_units(double value, std::initializer_list<const char*> units) {
  const char* unit = *units.begin();
  for (const char* const larger : units) {
    unit = larger;
    if (value < 999.5 || larger == *(units.end() - 1)) break;
    value /= 1000;
  }
  return digits_text(value) + " " + unit;
}

std::string bytes_text(double bytes) { return in_units(bytes / 1e3, {"kB", "MB", "GB", "TB", "PB"}); }
std::string seconds_text(double seconds) { return in_units(seconds * 1e3, {"ms", "s"}); }
std::string rate_text(double bytes_per_s) { return in_units(bytes_per_s * 8 / 1e6, {"Mb/s", "Gb/s"}); }

std::string bytes_line(const Savings& savings) {
  const std::string both = fmt::format("elements sent: {} raw, {} on the links", bytes_text(savings.raw_bytes),
                                       bytes_text(savings.sent_bytes));
  if (savings.codecs.empty()) return both + ": nothing was compressed";
  const double ratio = savings.raw_bytes / std::max(savings.sent_bytes, 1.0);
  const std::string change =
      ratio >= 1 ? digits_text(ratio) + " times fewer" : digits_text(100 / ratio - 100) + " % more";
  return fmt::format("{}: {} ({})", both, change, fmt::join(savings.codecs, ", "));
}

std::string time_line(const Savings& savings, std::optional<double> hidden) {
  std::string line = fmt::format("in exchange: {}", seconds_text(savings.exchange));
  if (hidden && savings.exchange > 0) {
    const double share = std::clamp(*hidden / savings.exchange, 0.0, 1.0);
    line += fmt::format(", about {:.0f} % of it hidden behind computing", 100 * share);
  }
  return line + fmt::format("; a link was full for {}, a worker busy for {}", seconds_text(savings.full),
                            seconds_text(savings.busy));
}

bool has_grown(const Savings& savings) { return savings.sent_bytes > savings.raw_bytes; }

// Returns the time that the sent bytes take at the link's rate.
double link_time(const Savings& savings) {
  return savings.raw_bytes > 0 ? savings.raw_link * savings.sent_bytes / savings.raw_bytes : 0;
}

// Returns whether cores may be the limit. Then the window may have been full because the neighbour's worker was busy,
// and the link carries more.
bool cores_limit(const Savings& savings) { return savings.busy > savings.full / 2; }

std::string longer_line(const Savings& savings) {
  if (savings.codecs.empty()) return "uncompressed: the same time";
  if (savings.rate == 0)
    return "uncompressed: not known, because no link was full for long enough to measure its speed";
  const bool most = cores_limit(savings);
  const std::string at = fmt::format("uncompressed, at the {} that the link carries{}: {}about ",
                                     rate_text(savings.rate), most ? ", or more" : "", most ? "at most " : "");
  const double longer = savings.longer();
  if (std::abs(longer) < kAlike * savings.exchange)
    return at + fmt::format("the same time, of which links would need {}", seconds_text(savings.raw_link));
  return at + fmt::format("{}, {} {}", seconds_text(savings.exchange + longer), seconds_text(std::abs(longer)),
                          longer > 0 ? "longer" : "less");
}

// Returns whether compression has clearly cost more than it saved. Returns false if the library has chosen a codec by
// measuring: that codec is known to be the fastest.
bool loses(const Savings& savings) {
  if (savings.codecs.empty() || savings.chosen) return false;
  if (has_grown(savings)) return savings.raw_bytes >= kMinReported;
  if (savings.rate == 0 || savings.codec < kMuch * savings.exchange) return false;
  const bool room = savings.raw_link < (1 - kMuch) * savings.exchange;
  const double saved = savings.packets + (room ? 0 : savings.raw_link - link_time(savings));
  return savings.codec > kClearly * saved;
}

std::string warning_line(const Savings& savings) {
  const double saved = std::max(savings.packets, 0.0) + std::max(savings.longer(), 0.0);
  const std::string what = has_grown(savings) ? "and did not reduce the bytes" : "and saved " + seconds_text(saved);
  return fmt::format(
      "WARNING: compression cost more than it saved: {} took about {} of CPU time, {}; try "
      "`codec: raw`, or auto:2^-10, which chooses by measuring (docs/when-it-pays.md)",
      fmt::join(savings.codecs, ", "), seconds_text(savings.codec), what);
}

}  // namespace

double Savings::longer() const {
  if (rate == 0) return 0;
  return has_grown(*this) ? raw_link - link_time(*this) : std::max(raw_link - exchange, 0.0);
}

bool codec_chosen(std::span<const PlanFigures> plan) {
  return std::ranges::any_of(plan, [](const PlanFigures& it) { return it.codec != kDefaultCodec && it.measured > 0; });
}

Savings savings_of(const NodeFigures& now, const NodeFigures* before, const Calibration& figures) {
  Savings savings;
  double unknown = 0;
  for (size_t i = 0; i < now.ranks.size(); ++i) {
    add_lane(savings, unknown, now.ranks[i],
             before != nullptr && i < before->ranks.size() ? &before->ranks[i] : nullptr, figures);
  }
  for (size_t i = 0; i < now.workers.size(); ++i) {
    const double old = before != nullptr && i < before->workers.size() ? before->workers[i].busy_us : 0;
    savings.busy = std::max(savings.busy, (now.workers[i].busy_us - old) / 1e6);
  }
  if (unknown > 0) savings.codec += unexplained(savings, figures) * unknown / savings.raw_bytes;
  savings.codec = std::min(savings.codec, savings.busy);
  savings.chosen = now.codec.starts_with("auto") || codec_chosen(now.plan);
  return savings;
}

Savings savings_of_all(std::span<const Savings> nodes) {
  Savings all;
  for (const Savings& it : nodes) {
    all.raw_bytes += it.raw_bytes;
    all.sent_bytes += it.sent_bytes;
    all.exchange = std::max(all.exchange, it.exchange);
    all.busy = std::max(all.busy, it.busy);
    if (it.rate > 0 ? it.raw_link > all.raw_link : all.rate == 0 && it.full > all.full) {
      all.full = it.full;
      all.rate = it.rate;
      all.raw_link = it.raw_link;
    }
    // Nodes work in parallel.
    all.packets = std::max(all.packets, it.packets);
    all.codec = std::max(all.codec, it.codec);
    for (const std::string& codec : it.codecs) {
      if (std::ranges::find(all.codecs, codec) == all.codecs.end()) all.codecs.push_back(codec);
    }
    all.chosen = all.chosen || it.chosen;
  }
  return all;
}

std::vector<std::string> savings_lines(const Savings& savings, std::optional<double> hidden) {
  if (savings.raw_bytes <= 0) return {};
  std::vector<std::string> lines = {bytes_line(savings), time_line(savings, hidden), longer_line(savings)};
  if (loses(savings)) lines.push_back(warning_line(savings));
  return lines;
}

nlohmann::json savings_json(const Savings& savings) {
  return {{"raw_bytes", savings.raw_bytes}, {"sent_bytes", savings.sent_bytes}, {"exchange_s", savings.exchange},
          {"busy_s", savings.busy},         {"full_s", savings.full},           {"full_bytes_per_s", savings.rate},
          {"raw_link_s", savings.raw_link}, {"packets_s", savings.packets},     {"codec_s", savings.codec},
          {"codecs", savings.codecs},       {"chosen", savings.chosen}};
}

Savings savings_from(const nlohmann::json& document) {
  Savings savings;
  if (!document.is_object()) return savings;
  const auto number = [&document](const char* name) {
    const auto found = document.find(name);
    return found != document.end() && found->is_number() ? found->get<double>() : 0.0;
  };
  savings.raw_bytes = number("raw_bytes");
  savings.sent_bytes = number("sent_bytes");
  savings.exchange = number("exchange_s");
  savings.busy = number("busy_s");
  savings.full = number("full_s");
  savings.rate = number("full_bytes_per_s");
  savings.raw_link = number("raw_link_s");
  savings.packets = number("packets_s");
  savings.codec = number("codec_s");
  if (const auto codecs = document.find("codecs"); codecs != document.end() && codecs->is_array()) {
    for (const nlohmann::json& each : *codecs) {
      if (each.is_string()) savings.codecs.push_back(each.get<std::string>());
    }
  }
  const auto chosen = document.find("chosen");
  savings.chosen = chosen != document.end() && *chosen == true;
  return savings;
}

}  // namespace gradlane
