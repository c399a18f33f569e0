// report.cc - output of `gradlane loopback`
#include "tools/loopback/report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <numeric>

namespace gradlane {
namespace {

double ratio(double part, double whole) { return whole == 0 ? 0 : part / whole; }
double difference(uint64_t after, uint64_t before) { return static_cast<double>(after - before); }

uint64_t dropped(const LoopbackFigures& figures) {
  return std::accumulate(figures.drops.begin(), figures.drops.end(), uint64_t{0});
}

bool looks_inside(const LoopbackSettings& plan) { return plan.config.mode != LoopbackMode::kIo; }

}  // namespace

LoopbackRates loopback_rates(const LoopbackSettings& plan, const LoopbackFigures& before, const LoopbackFigures& after,
                             double seconds) {
  const double packets = difference(after.received, before.received);
  const double busy = difference(after.busy_cycles, before.busy_cycles);
  const double operations = difference(after.operations, before.operations);
  const double tensor_bits = static_cast<double>(plan.config.tensor_floats * sizeof(float)) * 8;
  LoopbackRates rates;
  rates.mpps = ratio(packets, seconds) / 1e6;
  rates.gbps = ratio(difference(after.bytes, before.bytes) * 8, seconds) / 1e9;
  rates.cycles_per_packet = ratio(busy, packets);
  rates.busy = ratio(busy, busy + difference(after.idle_cycles, before.idle_cycles));
  rates.recode_gbps = ratio(difference(after.floats, before.floats) * sizeof(float) * 8, seconds) / 1e9;
  rates.operations = ratio(operations, seconds);
  rates.algbw = ratio(operations * tensor_bits, seconds) / 1e9;
  return rates;
}

void print_loopback_head(const LoopbackSettings& plan) {
  const LoopbackConfig& config = plan.config;
  fmt::print("loopback {}: {} <-> {}, core {}, bursts of {}, frames of {} bytes", loopback_mode_name(config.mode),
             config.devices[0], config.devices[1], plan.core, config.burst, config.frame_bytes);
  if (config.mode == LoopbackMode::kRing) {
    fmt::print(" at most, {} bytes, {}", config.tensor_floats * sizeof(float), config.codec.name());
  } else {
    fmt::print(", {} packets on each port", config.packets);
    if (config.mode == LoopbackMode::kCodec) fmt::print(", {}", config.codec.name());
  }
  fmt::print("\n");
}

void print_loopback_line(const LoopbackSettings& plan, double at, const LoopbackRates& rates,
                         const LoopbackFigures& figures) {
  fmt::print("{:7.1f} s {:9.3f} Mpps {:9.3f} Gb/s {:8.1f} cycles/packet {:5.1f} % busy", at, rates.mpps, rates.gbps,
             rates.cycles_per_packet, rates.busy * 100);
  if (plan.config.mode == LoopbackMode::kCodec) fmt::print(" {:8.3f} Gb/s of fp32", rates.recode_gbps);
  if (plan.config.mode == LoopbackMode::kRing) fmt::print(" {:8.1f} all-reduces/s", rates.operations);
  if (const uint64_t drops = dropped(figures); drops != 0) fmt::print(" {} dropped", drops);
  fmt::print("\n");
  std::fflush(stdout);
}

void print_loopback_table(const LoopbackSettings& plan, const LoopbackFigures& figures, const LoopbackTime& time) {
  const LoopbackRates rates = loopback_rates(plan, {}, figures, time.seconds);
  const auto count = [](const char* name, uint64_t value) { fmt::print("  {:<22}{:>18}\n", name, value); };
  const auto rate = [](const char* name, double value, const char* unit) {
    fmt::print("  {:<22}{:>18.3f} {}\n", name, value, unit);
  };
  fmt::print("\n{}, {:.2f} s, {:.2f} s of CPU time\n", loopback_mode_name(plan.config.mode), time.seconds, time.cpu);
  rate("packet rate", rates.mpps, "Mpps");
  rate("throughput", rates.gbps, "Gb/s");
  rate("cycles per packet", rates.cycles_per_packet, "");
  rate("busy", rates.busy * 100, "%");
  if (plan.config.mode == LoopbackMode::kCodec) rate("fp32 recoded", rates.recode_gbps, "Gb/s");
  if (plan.config.mode == LoopbackMode::kRing) {
    rate("all-reduces", rates.operations, "per second");
    rate("tensors (algbw)", rates.algbw, "Gb/s");
    fmt::print("  {:<22}{:>18}\n", "same result on both", figures.identical ? "yes" : "NO");
  }
  count("packets received", figures.received);
  count("packets sent", figures.sent);
  if (looks_inside(plan)) {
    fmt::print("received by ToS class\n");
    for (size_t i = 0; i < kTrafficClasses; ++i) {
      count(counter_name(static_cast<TrafficClass>(i)), figures.classes[i]);
    }
  }
  fmt::print("dropped\n");
  if (dropped(figures) == 0) fmt::print("  none\n");
  for (size_t i = 0; i < kLoopbackDrops; ++i) {
    if (figures.drops[i] != 0) count(loopback_drop_name(i), figures.drops[i]);
  }
}

std::string loopback_json(const LoopbackSettings& plan, const LoopbackFigures& figures, const LoopbackTime& time) {
  using Json = nlohmann::ordered_json;
  const LoopbackConfig& config = plan.config;
  const LoopbackRates rates = loopback_rates(plan, {}, figures, time.seconds);
  Json json = {{"mode", loopback_mode_name(config.mode)},
               {"devices", config.devices},
               {"core", plan.core},
               {"burst", config.burst},
               {"frame_bytes", config.frame_bytes},
               {"seconds", time.seconds},
               {"cpu_seconds", time.cpu},
               {"mpps", rates.mpps},
               {"gbps", rates.gbps},
               {"cycles_per_packet", rates.cycles_per_packet},
               {"busy", rates.busy},
               {"primed", figures.primed},
               {"received", figures.received},
               {"sent", figures.sent},
               {"left", figures.left}};
  json["classes"] = nullptr;
  if (looks_inside(plan)) {
    json["classes"] = Json::object();
    for (size_t i = 0; i < kTrafficClasses; ++i) {
      json["classes"][counter_name(static_cast<TrafficClass>(i))] = figures.classes[i];
    }
  }
  json["drops"] = Json::object();
  for (size_t i = 0; i < kLoopbackDrops; ++i) {
    // Packets for the host are dropped in mode ring only, because the exchange cannot use them.
    if (loopback_drops(i) || figures.drops[i] != 0) json["drops"][loopback_drop_name(i)] = figures.drops[i];
  }
  if (config.mode == LoopbackMode::kCodec) {
    json["codec"] = config.codec.name();
    json["floats"] = figures.floats;
    json["recode_gbps"] = rates.recode_gbps;
  }
  if (config.mode == LoopbackMode::kRing) {
    json["codec"] = config.codec.name();
    json["bytes"] = config.tensor_floats * sizeof(float);
    json["operations"] = figures.operations;
    json["operations_per_second"] = rates.operations;
    json["algbw_gbps"] = rates.algbw;
    json["identical"] = figures.identical;
  }
  return json.dump(2);
}

}  // namespace gradlane
