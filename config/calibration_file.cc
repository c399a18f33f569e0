// calibration_file.cc - conversion of a calibration to a YAML file, and back (set-up only)
#include "config/calibration_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <cstdio>
#include <utility>

#include "base/error.h"
#include "collectives/strategy/strategy_id.h"
#include "compress/codec.h"
#include "config/common_sections.h"
#include "config/section.h"
#include "config/yaml_tree.h"

namespace gradlane {
namespace {

constexpr const char* kCalibrationKeys[] = {"calibration", "made",       "host",     "cpu",
                                            "isa",         "program",    "port",     "start_us",
                                            "lanes",       "contention", "lambda",   "memory_gbytes_per_s",
                                            "packets",     "links",      "codecs",   "checks",
                                            "strategies",  "cores",      "exchanges"};
constexpr const char* kCheckKeys[] = {"times_as_long", "speedup"};
constexpr const char* kPacketKeys[] = {"send_ns",   "receive_ns", "call_ns", "per_call",
                                       "reduce_ns", "gather_ns",  "payload", "overhead"};
constexpr const char* kLinkKeys[] = {"from", "to", "latency_us", "gbps", "at_least"};
constexpr const char* kCodecCostKeys[] = {"codec", "encode_ns", "merge_ns", "decode_ns", "look_ns", "packet_ns",
                                          "bytes", "doubling",  "density",  "results",   "place_ns"};
constexpr const char* kExchangeKeys[] = {"library", "codec", "points"};
constexpr const char* kPointKeys[] = {"bytes", "us", "busy_us"};
constexpr size_t kLongestWords = 128;
constexpr double kMostNs = 1e9;
constexpr double kMicro = 1e-6;
constexpr double kGiga = 1e9;

// Reads a number, and multiplies it by `unit`.
void read_real(const Section& section, const char* key, double& target, double least, double most, double unit = 1) {
  const auto value = section.need(key);
  if (!value) return;
  if (const auto number = value->real(least, most)) target = *number * unit;
}

void read_words(const Section& section, const char* key, std::string& target) {
  if (const auto value = section.need(key)) target = value->text(kLongestWords).value_or("");
}

void read_made(const Section& root, Calibration& calibration) {
  const auto value = root.need("made");
  if (!value) return;
  calibration.made = value->text(kLongestWords).value_or("");
  const auto seconds = utc_seconds(calibration.made);
  if (!seconds) value->fault(quote_text(calibration.made) + " is not a time, allowed: as in 2026-11-23T16:44:25Z");
  calibration.made_s = seconds.value_or(0);
}

void read_packets(const Section& root, PacketCost& packets) {
  const auto value = root.need("packets");
  if (!value) return;
  const Section section(*value, kPacketKeys);
  read_real(section, "send_ns", packets.send_ns, 0, kMostNs);
  read_real(section, "receive_ns", packets.receive_ns, 0, kMostNs);
  read_real(section, "call_ns", packets.call_ns, 0, kMostNs);
  read_real(section, "per_call", packets.per_call, 1, 65536);
  read_real(section, "reduce_ns", packets.reduce_ns, 0, kMostNs);
  read_real(section, "gather_ns", packets.gather_ns, 0, kMostNs);
  read_real(section, "payload", packets.payload, 1, 65536);
  read_real(section, "overhead", packets.overhead, 0, 65536);
}

void read_links(const Section& root, Calibration& calibration) {
  const auto value = root.need("links");
  const auto list = value ? value->list("links") : std::nullopt;
  if (!list) return;
  for (const Value& each : *list) {
    const Section section(each, kLinkKeys);
    LinkCost link;
    section.whole("from", link.from, 0, 255);
    section.whole("to", link.to, 0, 255);
    read_real(section, "latency_us", link.latency, 0, 1e9, kMicro);
    read_real(section, "gbps", link.bandwidth, 1e-3, 1e5, kGiga / 8);
    section.flag("at_least", link.at_least);
    calibration.links.push_back(link);
  }
  calibration.link = slowest(calibration.links, calibration.link);
}

// Reads the checks. Older files do not have them.
void read_checks(const Section& root, CalibrationChecks& checks) {
  const auto value = root.find("checks");
  if (!value) return;
  const Section section(*value, kCheckKeys);
  read_real(section, "times_as_long", checks.times_as_long, 1e-6, 1e6);
  read_real(section, "speedup", checks.speedup, 1e-6, 1e6);
}

void read_strategies(const Section& root, std::vector<std::string>& strategies) {
  const auto value = root.find("strategies");
  const auto list = value ? value->list("strategies") : std::nullopt;
  if (!list) return;
  for (const Value& each : *list) {
    try {
      const auto text = each.text(kLongestWords);
      if (text) strategies.emplace_back(find_strategy(*text).name().view());
    } catch (const SetupError& error) {
      each.fault(error.what());
    }
  }
}

// Reads all-reduces that were measured through PyTorch. Files that were made without it do not have them.
void read_exchanges(const Section& root, std::vector<MeasuredExchange>& exchanges) {
  const auto value = root.find("exchanges");
  const auto list = value ? value->list("exchanges") : std::nullopt;
  if (!list) return;
  for (const Value& each : *list) {
    const Section section(each, kExchangeKeys);
    MeasuredExchange& exchange = exchanges.emplace_back();
    read_words(section, "library", exchange.library);
    read_words(section, "codec", exchange.codec);
    const auto points_value = section.need("points");
    const auto points = points_value ? points_value->list("points") : std::nullopt;
    if (!points) continue;
    for (const Value& one : *points) {
      const Section fields(one, kPointKeys);
      ExchangePoint point;
      read_real(fields, "bytes", point.bytes, 4, 1e15);
      read_real(fields, "us", point.seconds, 1e-3, 1e12, kMicro);
      read_real(fields, "busy_us", point.busy, 0, 1e12, kMicro);
      if (!exchange.points.empty() && point.bytes <= exchange.points.back().bytes) {
        one.fault("bytes must be more than those of the point before");
      }
      exchange.points.push_back(point);
    }
    if (exchange.points.empty()) points_value->fault("there is no point, needed: at least one");
  }
}

// Reads the name of a codec. The table of codecs gives the costs that follow from it.
void read_codec_name(const Section& section, CodecCost& cost) {
  const auto value = section.need("codec");
  if (!value) return;
  try {
    const Codec codec = find_codec(value->text(kLongestCodecName).value_or(""));
    constexpr size_t kMany = 4096;
    cost.name = codec.name();
    cost.owners = !codec.row().is_additive;
    cost.exact = codec.row().exact();
    cost.most_bytes = static_cast<double>(codec.max_bytes(kMany)) / kMany;
  } catch (const SetupError& error) {
    value->fault(error.what());
  }
}

void read_codecs(const Section& root, Calibration& calibration) {
  const auto value = root.need("codecs");
  const auto list = value ? value->list("codecs") : std::nullopt;
  if (!list) return;
  for (const Value& each : *list) {
    const Section section(each, kCodecCostKeys);
    CodecCost cost;
    read_codec_name(section, cost);
    read_real(section, "encode_ns", cost.encode_ns, 0, kMostNs);
    read_real(section, "merge_ns", cost.merge_ns, 0, kMostNs);
    read_real(section, "decode_ns", cost.decode_ns, 0, kMostNs);
    read_real(section, "look_ns", cost.look_ns, 0, kMostNs);
    read_real(section, "packet_ns", cost.packet_ns, 0, kMostNs);
    read_real(section, "bytes", cost.bytes, 1e-6, 64);
    read_real(section, "doubling", cost.doubling, 0, 4);
    read_real(section, "density", cost.density, 0, 1);
    read_real(section, "results", cost.results, 0, 64);
    // Older files do not have this key.
    if (section.find("place_ns")) read_real(section, "place_ns", cost.place_ns, 0, kMostNs);
    if (calibration.find(cost.name) != nullptr) each.fault(cost.name + " is given twice");
    calibration.codecs.push_back(std::move(cost));
  }
  if (calibration.find(kDefaultCodec) == nullptr)
    value->fault(
        "codec raw is missing, which all others are compared with, allowed: a list with raw; make the file again "
        "by `gradlane plan --calibrate`");
}

// Returns a text between single quotes, as YAML writes it.
std::string quote(const std::string& text) {
  std::string result = "'";
  for (const char c : text) result += c == '\'' ? "''" : std::string(1, c);
  return result + "'";
}

std::string exchanges_text(const Calibration& calibration) {
  std::string text;
  if (calibration.cores > 0) text += fmt::format("cores: {:.9g}\n", calibration.cores);
  if (calibration.exchanges.empty()) return text;
  text += "# all-reduces through PyTorch: time, and core-seconds of one node\nexchanges:\n";
  for (const MeasuredExchange& each : calibration.exchanges) {
    std::vector<std::string> points;
    for (const ExchangePoint& point : each.points) {
      points.push_back(fmt::format("{{bytes: {:.9g}, us: {:.9g}, busy_us: {:.9g}}}", point.bytes,
                                   point.seconds / kMicro, point.busy / kMicro));
    }
    text += fmt::format("  - library: {}\n    codec: {}\n    points:\n      - {}\n", quote(each.library),
                        quote(each.codec), fmt::join(points, "\n      - "));
  }
  return text;
}

}  // namespace

std::optional<uint64_t> utc_seconds(std::string_view text) {
  int year = 0;
  unsigned month = 0;
  unsigned day = 0;
  unsigned hour = 0;
  unsigned minute = 0;
  unsigned second = 0;
  char end = 0;
  char more = 0;
  const std::string whole(text);
  const int found = std::sscanf(whole.c_str(), "%4d-%2u-%2uT%2u:%2u:%2u%c%c", &year, &month, &day, &hour, &minute,
                                &second, &end, &more);
  const std::chrono::year_month_day date{std::chrono::year(year), std::chrono::month(month), std::chrono::day(day)};
  if (found != 7 || end != 'Z' || !date.ok() || year < 1970 || hour > 23 || minute > 59 || second > 59) {
    return std::nullopt;
  }
  const auto days = static_cast<uint64_t>(std::chrono::sys_days(date).time_since_epoch().count());
  return ((days * 24 + hour) * 60 + minute) * 60 + second;
}

std::string utc_text(uint64_t seconds) {
  const std::chrono::sys_days days{std::chrono::days(seconds / 86400)};
  const std::chrono::year_month_day date(days);
  const uint64_t rest = seconds % 86400;
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", static_cast<int>(date.year()),
                     static_cast<unsigned>(date.month()), static_cast<unsigned>(date.day()), rest / 3600,
                     rest / 60 % 60, rest % 60);
}

Calibration parse_calibration(std::string_view text, const std::string& file) {
  const YamlNode tree = parse_yaml(text, file);
  ConfigFaults faults(file);
  Calibration calibration;
  if (tree.kind == YamlNode::Kind::kNull) throw SetupError(file + ": the file is empty, so it is not a calibration");
  const Section root(Value(tree, "", faults), kCalibrationKeys);
  if (tree.kind != YamlNode::Kind::kMap) faults.throw_first();
  if (const auto version = root.find("calibration");
      version && version->node().text != std::to_string(kCalibrationVersion)) {
    throw SetupError(
        fmt::format("{}: is a calibration of version {}, but this program reads version {}: measure again with "
                    "gradlane plan --calibrate",
                    file, quote_text(version->node().text), kCalibrationVersion));
  }
  (void)root.need("calibration");
  read_made(root, calibration);
  read_words(root, "host", calibration.host);
  read_words(root, "cpu", calibration.cpu);
  read_words(root, "isa", calibration.isa);
  read_words(root, "program", calibration.program);
  read_words(root, "port", calibration.port);
  read_real(root, "start_us", calibration.start, 0, 1e9, kMicro);
  root.whole("lanes", calibration.lanes, 1, 256);
  read_real(root, "contention", calibration.contention, 1, 1000);
  read_real(root, "lambda", calibration.lambda, 1, 1000);
  read_real(root, "memory_gbytes_per_s", calibration.memory, 1e-3, 1e5, kGiga);
  read_packets(root, calibration.packets);
  read_links(root, calibration);
  read_codecs(root, calibration);
  read_checks(root, calibration.checks);
  read_strategies(root, calibration.strategies);
  if (root.find("cores")) read_real(root, "cores", calibration.cores, 0, 65536);
  read_exchanges(root, calibration.exchanges);
  faults.throw_first();
  return calibration;
}

Calibration load_calibration(const std::string& path) {
  return parse_calibration(read_config_file(path, "calibration"), path);
}

std::string calibration_text(const Calibration& calibration) {
  const PacketCost& packets = calibration.packets;
  std::string text = fmt::format(
      "# What an exchange costs here; `gradlane plan --calibration FILE` reads it. Times are of one core, and per\n"
      "# element (float) or packet.\n"
      "calibration: {}\nmade: {}\nhost: {}\ncpu: {}\nisa: {}\nprogram: {}\nport: {}\n",
      kCalibrationVersion, utc_text(calibration.made_s), quote(calibration.host), quote(calibration.cpu),
      quote(calibration.isa), quote(calibration.program), quote(calibration.port));
  if (calibration.lambda_most > 0) {
    text += fmt::format("# lambda: of its repetitions the least {:.3g}, the most {:.3g}\n", calibration.lambda_least,
                        calibration.lambda_most);
  }
  text += fmt::format("start_us: {:.9g}\nlanes: {}\ncontention: {:.9g}\nlambda: {:.9g}\nmemory_gbytes_per_s: {:.9g}\n",
                      calibration.start / kMicro, calibration.lanes, calibration.contention, calibration.lambda,
                      calibration.memory / kGiga);
  text += fmt::format(
      "packets:\n  send_ns: {:.9g}\n  receive_ns: {:.9g}\n  call_ns: {:.9g}\n  per_call: {:.9g}\n"
      "  reduce_ns: {:.9g}\n  gather_ns: {:.9g}\n  payload: {:.9g}\n  overhead: {:.9g}\n",
      packets.send_ns, packets.receive_ns, packets.call_ns, packets.per_call, packets.reduce_ns, packets.gather_ns,
      packets.payload, packets.overhead);
  text += calibration.links.empty() ? "links: []\n" : "links:\n";
  for (const LinkCost& each : calibration.links) {
    text += fmt::format("  - {{from: {}, to: {}, latency_us: {:.9g}, gbps: {:.9g}{}}}\n", each.from, each.to,
                        each.latency / kMicro, each.bandwidth * 8 / kGiga, each.at_least ? ", at_least: true" : "");
  }
  if (const CalibrationChecks& checks = calibration.checks; checks.times_as_long > 0) {
    text += fmt::format(
        "# measured / predicted of the all-reduce that is furthest off; raw / fixed:10 as measured\n"
        "checks: {{times_as_long: {:.9g}, speedup: {:.9g}}}\n",
        checks.times_as_long, checks.speedup);
  }
  if (!calibration.strategies.empty()) {
    text += fmt::format("strategies: ['{}']\n", fmt::join(calibration.strategies, "', '"));
  }
  text += "codecs:\n";
  for (const CodecCost& each : calibration.codecs) {
    text += fmt::format(
        "  - {{codec: '{}', encode_ns: {:.9g}, merge_ns: {:.9g}, decode_ns: {:.9g}, look_ns: {:.9g}, "
        "packet_ns: {:.9g},\n     bytes: {:.9g}, doubling: {:.9g}, density: {:.9g}, results: {:.9g}, place_ns: "
        "{:.9g}}}\n",
        each.name, each.encode_ns, each.merge_ns, each.decode_ns, each.look_ns, each.packet_ns, each.bytes,
        each.doubling, each.density, each.results, each.place_ns);
  }
  return text + exchanges_text(calibration);
}

}  // namespace gradlane
