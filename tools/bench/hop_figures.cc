// hop_figures.cc - cost of a ring's hops per packet with a codec, without I/O
#include "tools/bench/hop_figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>

#include "base/error.h"
#include "collectives/exchange/blocks.h"
#include "collectives/wire.h"
#include "tools/bench/hop.h"
#include "tools/bench/memory.h"
#include "tools/bench/report.h"
#include "tools/bench/ring.h"

namespace gradlane {
namespace {

// All-reduces run around a ring of four. Rank 1 is timed, one burst of packets at a time: receive() of each packet,
// then one poll(). A burst counts if it has only partial sums that rank 1 passes on, or only results that it stores and
// passes on.
//
// To get such bursts, the packets for rank 1 are held until no rank has anything else to do. By then rank 1 has sent
// its own elements, and the partial sums for it wait at rank 0. In turn, results for rank 0 are held until these sums
// have passed.
//
// For each such burst, one time is taken. It is that of the exchange, or that of a part of its work, done separately
// just before: the codec's part, the CRC's part, or memcpy for comparison. So the CPU's branch prediction has not yet
// seen the packets that are timed. The engine's share is the exchange's time less codec and CRC.
//
// Each timed burst follows one of the same kind, so the state of the exchange is in the caches, as in a busy loop. Just
// before the timing, all packets and elements of the burst are read, so that they are in L2 (if they fit).

using Clock = std::chrono::steady_clock;

constexpr size_t kGranule = kGranuleBytes / sizeof(float);
constexpr size_t kMaxTensor = size_t{64} << 20;
constexpr unsigned kPatience = 16;  // rounds without packets for rank 1, after which rank 0 gets its results

struct HopPlan {
  size_t mtu;
  size_t burst;
  size_t block_packets;
};

// The parts that can be timed on a burst.
enum Part : uint8_t { kTotal, kCodec, kCut, kCrc, kCopy, kParts };

// Samples of one kind of hop. Each burst gives one time.
struct HopSamples {
  std::array<std::vector<double>, kParts> times;  // per packet, in ns
  size_t bursts = 0;
  size_t runs = 0;
  size_t fused = 0;
  size_t sent = 0;  // packets
  size_t floats = 0;
  size_t bytes = 0;
};

double since(Clock::time_point start) { return std::chrono::duration<double, std::nano>(Clock::now() - start).count(); }

// Returns the time in ns that reading the clock takes.
double clock_cost() {
  std::vector<double> costs(1001);
  for (double& cost : costs) cost = since(Clock::now());
  return median(costs);
}

// Returns the number of floats that fill a packet.
size_t packet_floats(const Codec& codec, size_t mtu, std::span<const float> floats) {
  std::vector<uint8_t> packet(mtu - sizeof(LinkHeader) - sizeof(RunHeader));
  return codec.encode(floats, packet).floats;
}

// Gives rank 1 a burst, and polls. Each kind of hop has a function of its own, because dev/instructions.py counts its
// instructions. The empty statement keeps the compiler from merging them.
template <Hop kHop>
[[gnu::noinline]] void take(BenchRing& ring, std::span<Arrival> burst) noexcept {
  asm volatile("" : : "i"(static_cast<int>(kHop)));
  ring.receive(burst);
  ring.poll();
}

class ExchangeBench {
 public:
  ExchangeBench(const HopPlan& plan, const Codec& codec, std::span<const float> pattern);

  // Runs one all-reduce.
  void run_operation();
  // Returns the figures of all samples up to now.
  [[nodiscard]] std::vector<HopFigures> rows() const;

  void trace() { ring_.trace(); }

 private:
  [[nodiscard]] std::span<float> tensor(unsigned rank) const {
    return {reinterpret_cast<float*>(tensors_[rank].get()), elements_};
  }
  void fill_tensors();
  void check_results() const;
  bool round();
  void measure(Hop hop, HopSamples& samples);
  size_t work(Part part) noexcept;
  [[nodiscard]] double per_packet(Clock::time_point start) const {
    return (since(start) - clock_cost_) / static_cast<double>(ring_.burst());
  }

  const Codec codec_;
  const std::span<const float> pattern_;
  const size_t elements_;  // elements of a tensor
  const double clock_cost_ = clock_cost();
  BenchRing ring_;
  RingNode& node_;
  std::array<BenchMemory, BenchRing::kWorld> tensors_;
  HopBurst work_;
  std::vector<Arrival> first_;  // first of two bursts
  std::vector<Arrival> burst_;
  HopSamples reduce_;
  HopSamples gather_;
  volatile size_t sink_ = 0;  // keeps the compiler from leaving out work
};

size_t tensor_elements(const HopPlan& plan, const Codec& codec, std::span<const float> pattern) {
  const size_t floats = packet_floats(codec, plan.mtu, pattern) * plan.block_packets * BenchRing::kWorld;
  return std::min(floats, kMaxTensor / sizeof(float)) / kGranule * kGranule;
}

ExchangeBench::ExchangeBench(const HopPlan& plan, const Codec& codec, std::span<const float> pattern)
    : codec_(codec),
      pattern_(pattern),
      elements_(tensor_elements(plan, codec, pattern)),
      ring_(codec, plan.mtu, elements_ * sizeof(float), plan.burst),
      node_(ring_.node(BenchRing::kTimed)),
      tensors_{allocate_memory(elements_ * sizeof(float)), allocate_memory(elements_ * sizeof(float)),
               allocate_memory(elements_ * sizeof(float)), allocate_memory(elements_ * sizeof(float))},
      work_(codec, Blocks::spread(BenchRing::kWorld, elements_, kGranule), tensor(BenchRing::kTimed), plan.mtu,
            plan.burst) {}

void ExchangeBench::fill_tensors() {
  for (unsigned rank = 0; rank < BenchRing::kWorld; ++rank) {
    const std::span<float> floats = tensor(rank);
    size_t from = rank * pattern_.size() / BenchRing::kWorld;
    for (size_t i = 0; i < floats.size(); from = 0) {
      const size_t count = std::min(floats.size() - i, pattern_.size() - from);
      std::copy_n(pattern_.begin() + static_cast<ptrdiff_t>(from), count, floats.begin() + static_cast<ptrdiff_t>(i));
      i += count;
    }
  }
}

void ExchangeBench::check_results() const {
  for (unsigned rank = 1; rank < BenchRing::kWorld; ++rank) {
    if (std::memcmp(tensor(0).data(), tensor(rank).data(), elements_ * sizeof(float)) == 0) continue;
    throw SetupError("the ranks of a benchmark have different results: this is a bug in gradlane");
  }
}

void ExchangeBench::run_operation() {
  fill_tensors();
  for (unsigned rank = 0; rank < BenchRing::kWorld; ++rank) {
    Operation operation;
    operation.count = elements_;
    operation.data = tensor(rank).data();
    ring_.submit(rank, operation);
  }
  RingNode& before = ring_.node(BenchRing::kBefore);
  node_.held = true;
  ring_.run_dry();
  node_.held = false;
  before.held = true;
  for (unsigned idle = 0; !ring_.done(); ++idle) {
    if (round()) idle = 0;
    if (idle == kPatience) before.held = false;
    if (idle == 1000 * kPatience) throw SetupError("an operation of a benchmark hangs: this is a bug in gradlane");
  }
  check_results();
}

// Takes two bursts for rank 1, and times the second one if it is of the right kind. Returns whether that one had
// packets.
bool ExchangeBench::round() {
  ring_.serve_others();
  ring_.take_burst(first_);
  ring_.receive(first_);
  ring_.poll();
  ring_.take_burst(burst_);
  const Hop hop = work_.look_at(burst_, ring_.burst());
  if (hop == Hop::kNone) {
    ring_.receive(burst_);
    ring_.poll();
  } else {
    measure(hop, hop == Hop::kReduce ? reduce_ : gather_);
  }
  ring_.finish(first_);
  ring_.finish(burst_);
  ring_.deliver();
  return !burst_.empty();
}

size_t ExchangeBench::work(Part part) noexcept {
  switch (part) {
    case kCodec:
      return work_.code();
    case kCut:
      return work_.code_cut();
    case kCrc:
      return work_.check();
    default:
      return work_.copy();
  }
}

void ExchangeBench::measure(Hop hop, HopSamples& samples) {
  const auto part = static_cast<Part>(samples.bursts++ % kParts);
  double time = 0;
  if (part != kTotal) {
    if (work_.look_at(first_, ring_.burst()) == hop) sink_ = work(part);
    (void)work_.look_at(burst_, ring_.burst());
    work_.touch({});
    const auto start = Clock::now();
    sink_ = work(part);
    time = per_packet(start);
  }
  const Counters& counters = node_.exchange().counters();
  const uint64_t merged = counters[Counter::kRunsMerged];
  const uint64_t sent = counters[Counter::kDataSent];
  work_.touch(ring_.pool().next(ring_.burst() + 2));
  const auto start = Clock::now();
  hop == Hop::kReduce ? take<Hop::kReduce>(ring_, burst_) : take<Hop::kGather>(ring_, burst_);
  samples.times[part].push_back(part == kTotal ? per_packet(start) : time);

  samples.runs += work_.runs();
  samples.floats += work_.floats();
  samples.bytes += work_.bytes();
  samples.sent += counters[Counter::kDataSent] - sent;
  samples.fused += counters[Counter::kRunsMerged] - merged;
  for (const Arrival& each : burst_) {
    if (each.kept) samples.fused += HopBurst::runs_of(each);  // relayed with all of its runs
  }
}

std::vector<HopFigures> ExchangeBench::rows() const {
  std::vector<HopFigures> rows;
  for (const HopSamples* const samples : {&reduce_, &gather_}) {
    const char* const name = samples == &reduce_ ? "reduce" : "gather";
    if (samples->bursts < kParts) {
      throw SetupError(fmt::format("{}: too few bursts of the {} phase to measure", codec_.name(), name));
    }
    const auto packets = static_cast<double>(samples->bursts * ring_.burst());
    const auto time = [samples](Part part) { return median(samples->times[part]); };
    const double sent_per_packet = static_cast<double>(samples->sent) / packets;
    rows.push_back({.hop = name,
                    .codec = codec_.name(),
                    .isa = isa_name(codec_.isa()),
                    .burst = ring_.burst(),
                    .bursts = samples->bursts,
                    .packet_bytes = static_cast<double>(samples->bytes) / packets,
                    .floats = static_cast<double>(samples->floats) / packets,
                    .sent = sent_per_packet,
                    .fused = static_cast<double>(samples->fused) / static_cast<double>(samples->runs),
                    .total = time(kTotal),
                    .codec_time = time(kCodec),
                    .cut = time(kCut) - time(kCodec),
                    .crc = time(kCrc) * (1 + sent_per_packet) / 2,
                    .copy = time(kCopy)});
  }
  return rows;
}

}  // namespace

std::vector<HopFigures> hop_figures(const Codec& codec, size_t mtu, size_t burst, const HopEffort& effort,
                                    std::span<const float> pattern) {
  ExchangeBench bench({mtu, burst, effort.block_packets}, codec, pattern);
  if (effort.trace) bench.trace();
  for (size_t i = 0; i < effort.operations; ++i) bench.run_operation();
  return bench.rows();
}

}  // namespace gradlane
