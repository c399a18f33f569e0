// settings.cc - options of `gradlane loopback`, parsed and checked
#include "tools/loopback/settings.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sched.h>

#include <algorithm>
#include <string_view>

#include "base/error.h"
#include "base/parse.h"
#include "sim/data.h"

namespace gradlane {
namespace {

constexpr const char* kModes[] = {"io", "classify", "codec", "ring"};
constexpr size_t kPlainFrame = 64;  // the size that testpmd sends
constexpr size_t kFullFrame = 1514;

[[noreturn]] void reject(const char* option, const std::string& text, std::string_view allowed) {
  throw SetupError(fmt::format("{} '{}': must be {}", option, text, allowed));
}

// Parses a whole number. With `units`, K, M or G may follow it.
uint64_t parse(const char* option, const std::string& text, uint64_t fallback, uint64_t least, uint64_t most,
               std::string_view allowed, bool units = false) {
  if (text.empty()) return fallback;
  const auto number = units ? parse_quantity(text, kShortSizes, least, most) : parse_decimal(text, least, most);
  if (!number) reject(option, text, allowed);
  return *number;
}

uint64_t parse_range(const char* option, const std::string& text, uint64_t fallback, uint64_t least, uint64_t most) {
  return parse(option, text, fallback, least, most, fmt::format("a whole number from {} to {}", least, most));
}

LoopbackMode parse_mode(const std::string& text) {
  if (text.empty()) return LoopbackMode::kIo;
  const auto* const found = std::ranges::find(kModes, text);
  if (found == std::end(kModes)) {
    throw SetupError(fmt::format("--mode '{}': allowed: {}", text, fmt::join(kModes, ", ")));
  }
  return static_cast<LoopbackMode>(found - std::begin(kModes));
}

double parse_seconds(const std::string& text) {
  if (text.empty()) return 5;
  const auto seconds = parse_real(text, 0, 1e6);
  if (!seconds) reject("--seconds", text, "a time from 0 to 1000000 s; 0: until Ctrl-C");
  return *seconds;
}

std::string parse_data(const std::string& text) {
  if (text.empty()) return "laplace-1e-3";
  const std::vector<std::string> names = data_names();
  if (std::ranges::find(names, text) != names.end()) return text;
  throw SetupError(fmt::format("--data '{}': allowed: {}", text, fmt::join(names, ", ")));
}

// Returns the core to run on: by default the last one, because other programs tend to run on the first.
unsigned parse_core(const std::string& text) {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof(set), &set);
  std::vector<unsigned> allowed;
  for (unsigned cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &set)) allowed.push_back(cpu);
  }
  const std::string choice = fmt::format("one of {}", fmt::join(allowed, ", "));
  const auto core = static_cast<unsigned>(parse("--core", text, allowed.back(), 0, CPU_SETSIZE - 1, choice));
  if (std::ranges::find(allowed, core) == allowed.end()) reject("--core", text, choice);
  return core;
}

void set_devices(const std::vector<std::string>& devices, LoopbackConfig& config) {
  if (devices.empty()) return;
  if (devices.size() != config.devices.size()) {
    throw SetupError(
        fmt::format("--device: given {} times; must be given twice, for the two ports, or not at all", devices.size()));
  }
  std::ranges::copy(devices, config.devices.begin());
  const auto name = [](const std::string& device) { return device.substr(0, device.find(',')); };
  for (const std::string& device : devices) {
    if (name(device).empty()) reject("--device", device, "the name of a virtual device, as in net_ring0");
  }
  if (name(devices[0]) == name(devices[1]))
    reject("--device", devices[1], "another device than that of the first port");
}

}  // namespace

const char* loopback_mode_name(LoopbackMode mode) noexcept { return kModes[static_cast<size_t>(mode)]; }

LoopbackSettings plan_loopback(const LoopbackOptions& options) {
  LoopbackSettings plan;
  LoopbackConfig& config = plan.config;
  config.mode = parse_mode(options.mode);
  set_devices(options.devices, config);
  const bool whole_packets = config.mode == LoopbackMode::kCodec || config.mode == LoopbackMode::kRing;
  config.burst = static_cast<unsigned>(parse_range("--burst", options.burst, 32, 1, kMaxLoopbackBurst));
  config.packets = parse_range("--packets", options.packets, config.burst, 1, 65536);
  if (config.mode == LoopbackMode::kRing) config.packets = 0;  // the exchange makes its own
  config.frame_bytes = parse_range("--size", options.size, whole_packets ? kFullFrame : kPlainFrame,
                                   whole_packets ? kMinLoopbackPacket : kMinLoopbackFrame, kMaxLoopbackFrame);
  if (!options.codec.empty()) config.codec = find_codec(options.codec);
  const size_t bytes = parse("--bytes", options.bytes, size_t{1} << 20, 4, size_t{1} << 30,
                             "a size from 4 to 1G bytes, a multiple of 4, as in 64K or 16M", true);
  if (bytes % sizeof(float) != 0) reject("--bytes", options.bytes, "a multiple of 4");
  config.tensor_floats = config.mode == LoopbackMode::kRing ? bytes / sizeof(float) : 0;
  plan.seconds = parse_seconds(options.seconds);
  plan.core = parse_core(options.core);
  const uint64_t seed = parse("--seed", options.seed, 1, 0, ~uint64_t{0}, "a whole number from 0 to 2^64 - 1");
  plan.data.resize(kLoopbackFloats);
  fill_data(parse_data(options.data), seed, plan.data);
  config.data = plan.data;
  return plan;
}

}  // namespace gradlane
