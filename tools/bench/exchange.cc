// exchange.cc - `gradlane bench exchange`: cost of a hop of the exchange per packet, without I/O
#include "tools/bench/exchange.h"

#include <fmt/format.h>

#include <cstddef>
#include <nlohmann/json.hpp>
#include <span>

#include "base/error.h"
#include "base/parse.h"
#include "collectives/wire.h"
#include "sim/data.h"
#include "tools/bench/hop_figures.h"
#include "tools/bench/ring.h"

namespace gradlane {
namespace {

using Names = std::vector<std::string>;

const Names kCodecs = {"raw", "bf16", "fixed:10", "inceptionn:10"};
constexpr const char* kData = "laplace-1e-3";
constexpr size_t kIpUdpBytes = 28;
constexpr size_t kPattern = size_t{1} << 20;  // floats that tensors repeat

constexpr HopEffort kFull = {512, 32};
constexpr HopEffort kQuick = {256, 6};

struct Plan {
  std::vector<Codec> codecs;
  size_t mtu;  // counted from the link header on
  size_t burst;
  HopEffort effort;
};

// ---- Options

size_t parse_number(const char* option, const std::string& text, size_t fallback, size_t least, size_t most) {
  if (text.empty()) return fallback;
  if (const auto value = parse_decimal(text, least, most)) return *value;
  throw SetupError(fmt::format("{} '{}': must be {} to {}", option, text, least, most));
}

Plan make_plan(const ExchangeBenchOptions& options) {
  Plan plan;
  for (const std::string& name : options.codecs.empty() ? kCodecs : options.codecs) {
    plan.codecs.push_back(find_codec(name));
  }
  plan.mtu = parse_number("--mtu", options.mtu, 1500, kMinPacket + kIpUdpBytes, kMaxMtu + kIpUdpBytes) - kIpUdpBytes;
  plan.burst = parse_number("--burst", options.burst, BenchRing::kMaxBurst, 1, BenchRing::kMaxBurst);
  plan.effort = options.quick ? kQuick : kFull;
  plan.effort.trace = options.trace;
  return plan;
}

// ---- Printing

void print_head(const Plan& plan) {
  fmt::print("ns per packet of up to {} bytes from the link header on, {} packets between two polls\n", plan.mtu,
             plan.burst);
  fmt::print("{:<7} {:<22} {:<6} {:>5} {:>6} {:>6} {:>6} {:>6} {:>6} {:>7} {:>6} {:>7} {:>6}\n", "hop", "codec", "isa",
             "bytes", "floats", "total", "codec", "CRC", "engine", "cutting", "memcpy", "M pkt/s", "fused");
}

void print_row(const HopFigures& row) {
  fmt::print(
      "{:<7} {:<22} {:<6} {:>5.0f} {:>6.0f} {:>6.1f} {:>6.1f} {:>6.1f} {:>6.1f} {:>7.1f} {:>6.1f} {:>7.2f} "
      "{:>5.1f}%\n",
      row.hop, row.codec, row.isa, row.packet_bytes, row.floats, row.total, row.codec_time, row.crc, row.engine(),
      row.cut, row.copy, 1e3 / row.total, 100 * row.fused);
}

std::string to_json(std::span<const HopFigures> rows) {
  nlohmann::json result = {{"rows", nlohmann::json::array()}};
  for (const HopFigures& row : rows) {
    result["rows"].push_back({{"hop", row.hop},
                              {"codec", row.codec},
                              {"isa", row.isa},
                              {"burst", row.burst},
                              {"bursts", row.bursts},
                              {"packet_bytes", row.packet_bytes},
                              {"floats_per_packet", row.floats},
                              {"total_ns", row.total},
                              {"codec_ns", row.codec_time},
                              {"crc_ns", row.crc},
                              {"engine_ns", row.engine()},
                              {"cut_ns", row.cut},
                              {"memcpy_ns", row.copy},
                              {"packets_per_second", 1e9 / row.total},
                              {"sent_per_packet", row.sent},
                              {"fused", row.fused}});
  }
  return result.dump(1);
}

}  // namespace

void run_exchange_bench(const ExchangeBenchOptions& options) {
  const Plan plan = make_plan(options);
  std::vector<float> pattern(kPattern);
  fill_data(kData, 1, pattern);
  std::vector<HopFigures> rows;
  if (!options.json) print_head(plan);
  for (const Codec& codec : plan.codecs) {
    for (const HopFigures& row : hop_figures(codec, plan.mtu, plan.burst, plan.effort, pattern)) {
      if (!options.json) print_row(row);
      rows.push_back(row);
    }
  }
  if (options.json) fmt::print("{}\n", to_json(rows));
}

}  // namespace gradlane
