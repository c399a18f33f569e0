// output.cc - output of `gradlane plan --calibrate`: a table, or JSON
#include "tools/calibrate/output.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <span>

namespace gradlane {
namespace {

constexpr size_t kMostLinks = 16;  // if there are more links, only the worst figures are printed
constexpr double kUs = 1e-6;

double gbps_of(const LinkCost& link) { return link.bandwidth * 8e-9; }

std::string remark(const LinkCost& link) {
  std::string text = link.at_least ? " or more: limited by a core, not by the link" : "";
  if (link.unsteady) text += "  unsteady";
  return text;
}

double port_ns(const PacketCost& packets) {
  return packets.send_ns + packets.receive_ns + 2 * packets.call_ns / packets.per_call;
}

void print_links(const Calibration& calibration) {
  fmt::print("\n{:<12} {:>10} {:>8}\n", "link", "us one way", "Gb/s");
  if (calibration.links.size() <= kMostLinks) {
    for (const LinkCost& each : calibration.links) {
      fmt::print("{:<12} {:>10.1f} {:>8.3g}{}\n", fmt::format("{} -> {}", each.from, each.to), each.latency / kUs,
                 gbps_of(each), remark(each));
    }
  } else {
    fmt::print("{:<12} {:>10.1f} {:>8.3g}{}\n", fmt::format("worst of {}", calibration.links.size()),
               calibration.link.latency / kUs, gbps_of(calibration.link), remark(calibration.link));
  }
  if (std::ranges::any_of(calibration.links, &LinkCost::unsteady)) {
    fmt::print(
        "unsteady: repetitions or the two directions differ by a factor of more than {:g}; check for other traffic\n",
        kUnsteady);
  }
}

void print_codecs(const Calibration& calibration) {
  fmt::print("\n{:<14} {:>7} {:>7} {:>7} {:>7} {:>7}   {:>9}   {:>7}\n", "codec: ns", "encode", "merge", "decode",
             "look", "place", "of packet", "bytes");
  for (const CodecCost& each : calibration.codecs) {
    fmt::print("{:<14} {:>7.2f} {:>7.2f} {:>7.2f} {:>7.2f} {:>7.2f}   {:>9.0f}   {:>7.3g}\n", each.name, each.encode_ns,
               each.merge_ns, each.decode_ns, each.look_ns, each.place_ns, each.packet_ns, each.bytes);
  }
}

void print_checks(std::span<const CheckedTime> checked) {
  fmt::print("\nall-reduce, with these figures:\n{:<14} {:>9} {:>14} {:>14}\n", "codec", "KiB", "us measured",
             "us predicted");
  for (const CheckedTime& each : checked) {
    fmt::print("{:<14} {:>9} {:>14.0f} {:>14.0f}\n", each.codec, each.bytes / 1024, each.measured / kUs,
               each.predicted / kUs);
  }
}

// Prints a row for each library and codec, and a column for each size. Rivals come first, next to gradlane's `raw`.
void print_exchanges(const Calibration& calibration) {
  std::set<double> sizes;
  for (const MeasuredExchange& each : calibration.exchanges) {
    for (const ExchangePoint& point : each.points) sizes.insert(point.bytes);
  }
  fmt::print("\n{:<26}", "ms through PyTorch, KiB");
  for (const double size : sizes) fmt::print(" {:>9.0f}", size / 1024);
  fmt::print("\n");
  for (const MeasuredExchange& each : calibration.exchanges) {
    fmt::print("{:<26}", fmt::format("{} {}", each.library, each.codec));
    for (const double size : sizes) {
      const auto point = std::ranges::find(each.points, size, &ExchangePoint::bytes);
      fmt::print(" {:>9}", point == each.points.end() ? "-" : fmt::format("{:.2f}", point->seconds * 1e3));
    }
    fmt::print("\n");
  }
}

}  // namespace

void print_calibration(const CalibrationResult& result) {
  const Calibration& calibration = result.calibration;
  const PacketCost& packets = calibration.packets;
  fmt::print("{}: {}, {}, gradlane {}\n", calibration.host, calibration.cpu, calibration.isa, calibration.program);
  fmt::print("memory {:.1f} GB/s; {} lane{}", calibration.memory * 1e-9, calibration.lanes,
             calibration.lanes == 1 ? "" : "s");
  if (calibration.lanes > 1) fmt::print(", each takes {:.2f} times as long when all work", calibration.contention);
  fmt::print("\npacket: {:.0f} ns of the exchange (sums; results {:.0f}), ", packets.reduce_ns, packets.gather_ns);
  if (!result.ring) {
    fmt::print("{:.0f} ns of the port ({}: usual figures, not measured)\n", port_ns(packets), calibration.port);
    fmt::print("not measured: links, and how much an exchange slows down computing\n");
  } else {
    fmt::print("{:.0f} ns of the port ({}, MTU {:.0f})\n", port_ns(packets), calibration.port, packets.mtu());
    fmt::print(
        "start of an operation {:.0f} us; computing during an exchange takes {:.2f} times as long ({:.2f} to {:.2f})\n",
        calibration.start / kUs, calibration.lambda, calibration.lambda_least, calibration.lambda_most);
    print_links(calibration);
  }
  print_codecs(calibration);
  if (!result.checked.empty()) print_checks(result.checked);
  if (const std::string misfit = misfit_text(calibration.checks); !misfit.empty()) fmt::print("{}\n", misfit);
  if (!calibration.exchanges.empty()) print_exchanges(calibration);
}

std::string to_json(const CalibrationResult& result) {
  using nlohmann::json;
  const Calibration& calibration = result.calibration;
  const PacketCost& packets = calibration.packets;
  json document = {
      {"host", calibration.host},
      {"cpu", calibration.cpu},
      {"isa", calibration.isa},
      {"program", calibration.program},
      {"port", calibration.port},
      {"file", result.file},
      {"ring", result.ring},
      {"memory_gbytes_per_s", calibration.memory * 1e-9},
      {"lanes", calibration.lanes},
      {"contention", calibration.contention},
      {"lambda", calibration.lambda},
      {"lambda_least", calibration.lambda_least},
      {"lambda_most", calibration.lambda_most},
      {"misfit", misfit_text(calibration.checks)},
      {"strategies", calibration.strategies},
      {"start_us", calibration.start / kUs},
      {"packet_ns", {{"port", port_ns(packets)}, {"sum", packets.reduce_ns}, {"result", packets.gather_ns}}},
      {"links", json::array()},
      {"codecs", json::array()},
      {"checks", json::array()},
      {"cores", calibration.cores},
      {"exchanges", json::array()},
      {"exchanges_fault", result.exchanges_fault}};
  for (const LinkCost& each : calibration.links) {
    document["links"].push_back({{"from", each.from},
                                 {"to", each.to},
                                 {"latency_us", each.latency / kUs},
                                 {"gbps", gbps_of(each)},
                                 {"at_least", each.at_least},
                                 {"unsteady", each.unsteady}});
  }
  for (const CodecCost& each : calibration.codecs) {
    document["codecs"].push_back({{"codec", each.name},
                                  {"encode_ns", each.encode_ns},
                                  {"merge_ns", each.merge_ns},
                                  {"decode_ns", each.decode_ns},
                                  {"look_ns", each.look_ns},
                                  {"packet_ns", each.packet_ns},
                                  {"place_ns", each.place_ns},
                                  {"bytes", each.bytes}});
  }
  for (const CheckedTime& each : result.checked) {
    document["checks"].push_back({{"codec", each.codec},
                                  {"bytes", each.bytes},
                                  {"measured_us", each.measured / kUs},
                                  {"predicted_us", each.predicted / kUs}});
  }
  for (const MeasuredExchange& each : calibration.exchanges) {
    json points = json::array();
    for (const ExchangePoint& point : each.points) {
      points.push_back({{"bytes", point.bytes}, {"us", point.seconds * 1e6}, {"busy_us", point.busy * 1e6}});
    }
    document["exchanges"].push_back({{"library", each.library}, {"codec", each.codec}, {"points", points}});
  }
  return document.dump(-1, ' ', false, json::error_handler_t::replace);  // texts of other programs are in it
}

}  // namespace gradlane
