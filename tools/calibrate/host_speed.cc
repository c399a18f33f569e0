// host_speed.cc - costs of codecs, the exchange and memory on this host, measured within seconds (no daemon)
#include "tools/calibrate/host_speed.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <functional>
#include <latch>
#include <map>
#include <span>
#include <string_view>
#include <system_error>
#include <thread>

#include "base/error.h"
#include "compress/codec.h"
#include "config/config.h"
#include "sim/data.h"
#include "tools/bench/codec.h"
#include "tools/bench/hop_figures.h"
#include "tools/bench/memory.h"
#include "tools/bench/report.h"
#include "tools/bench/samples.h"

namespace gradlane {
namespace {

constexpr const char* kData = "gauss-0.01";
// Codecs whose sums a ring carries, and which make enough packets to time their hops. raw must be first.
constexpr std::string_view kInRings[] = {"raw",     "bf16",          "fp16",  "fixed:10",
                                         "fixed:7", "inceptionn:10", "tbq:7", "signsgd"};
constexpr std::string_view kLattice = "fixed:10";
constexpr int kRounds = 2;  // several, because other programs use the CPU in bursts; the best round counts

// Times of one codec in a ring, in ns: per element, and per packet without the codec's work on elements.
struct HopTimes {
  double merge = 0;
  double decode = 0;
  double reduce_packet = 0;
  double gather_packet = 0;
};

HopTimes hop_times(const Codec& codec, size_t mtu, std::span<const float> pattern) {
  constexpr HopEffort kQuick = {256, 6};
  constexpr size_t kBurst = 32;
  const std::vector<HopFigures> figures = hop_figures(codec, mtu, kBurst, kQuick, pattern);
  const HopFigures& reduce = figures.front();
  const HopFigures& gather = figures.back();
  // The total time and the codec's part are medians of different samples. On a busy host, the part can exceed the
  // total.
  return {reduce.codec_time / reduce.floats, gather.codec_time / gather.floats,
          std::max(0.0, reduce.total - reduce.codec_time), std::max(0.0, gather.total - gather.codec_time)};
}

// Lowers `cost` to `found` if that is less. A `cost` of 0 means that there is none yet.
void better(double& cost, double found) { cost = cost == 0 ? found : std::min(cost, found); }

void measure_codec(CodecCost& cost, const Samples& data) {
  const CodecTimes times = codec_times(find_codec(cost.name), data);
  better(cost.encode_ns, times.encode);
  better(cost.decode_ns, times.decode);
  better(cost.merge_ns, times.merge);
  better(cost.look_ns, times.scan);
}

// Runs `one` in `threads` threads at once, and returns their results. A thread repeats it until all threads have a
// result, so that no thread is measured alone. Throws SetupError if threads or memory are missing.
std::vector<double> times_at_once(unsigned threads, const std::function<double()>& one) {
  std::vector<double> times(threads);
  std::atomic<bool> given_up = false;
  std::atomic<unsigned> left = threads;
  std::latch begin(1);
  const auto measure = [&](double& time) {
    begin.wait();
    try {
      if (!given_up) time = one();
      --left;
      while (!given_up && left > 0) (void)one();
    } catch (const std::exception&) {  // no memory
      given_up = true;
    }
  };
  {
    std::vector<std::jthread> running;
    try {
      for (double& time : times) running.emplace_back(measure, std::ref(time));
    } catch (const std::system_error&) {
      given_up = true;
    }
    begin.count_down();
  }
  if (given_up)
    throw SetupError(fmt::format("not enough threads or memory to measure {} lanes at once: try --lanes 1", threads));
  return times;
}

}  // namespace

void measure_host(Calibration& calibration, const Progress& progress) {
  const auto data = make_samples({kData});
  std::vector<float> pattern(size_t{1} << 20);
  fill_data(kData, 1, pattern);
  const auto mtu = static_cast<size_t>(calibration.packets.mtu()) - kIpUdpBytes;

  progress("codecs");
  calibration.codecs = usual_calibration(PlanPort::kUdp).codecs;
  const double usual_cut = calibration.find(kLattice)->packet_ns;
  std::map<std::string_view, HopTimes> hops;
  for (const std::string_view name : kInRings) hops[name] = hop_times(find_codec(name), mtu, pattern);
  const HopTimes& raw = hops[kInRings[0]];
  calibration.packets.reduce_ns = raw.reduce_packet;
  calibration.packets.gather_ns = raw.gather_packet;
  const double cut = std::max(0.0, hops[kLattice].reduce_packet - raw.reduce_packet) / usual_cut;
  for (CodecCost& cost : calibration.codecs) cost.encode_ns = cost.decode_ns = cost.merge_ns = cost.look_ns = 0;
  for (int round = 0; round < kRounds; ++round) {
    for (CodecCost& cost : calibration.codecs) measure_codec(cost, data.front());
  }
  for (CodecCost& cost : calibration.codecs) {
    const auto hop = hops.find(cost.name);
    if (hop == hops.end()) {
      // cutting and joining are not measured for this codec: they cost its usual time, scaled as for kLattice
      cost.packet_ns *= cut;
      continue;
    }
    cost.merge_ns = hop->second.merge;
    cost.decode_ns = hop->second.decode;
    cost.packet_ns = std::max(0.0, hop->second.reduce_packet - raw.reduce_packet);
  }

  progress("memory");
  calibration.memory = memory_speed();
}

double measure_contention(unsigned lanes) {
  if (lanes < 2) return 1;
  const auto data = make_samples({kData});
  const auto one = [&data] {
    double sum = 0;
    for (const char* const name : {"raw", "fixed:10"}) {
      const CodecTimes times = codec_times(find_codec(name), data.front());
      sum += times.merge + times.decode;
    }
    return sum;
  };
  const auto all = [&] { return median(times_at_once(lanes, one)); };
  std::vector<double> slower;
  for (int i = 0; i < 3; ++i) {
    const double alone = one();
    slower.push_back(all() / alone);
  }
  return std::max(1.0, median(slower));
}

}  // namespace gradlane
