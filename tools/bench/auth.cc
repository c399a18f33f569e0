// auth.cc - `gradlane bench auth`: cost of tags and checksums of packets
#include "tools/bench/auth.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "base/error.h"
#include "collectives/crc32c.h"
#include "dataplane/frame/packet_auth.h"
#include "tools/bench/memory.h"
#include "tools/bench/report.h"

namespace gradlane {
namespace {

using Clock = std::chrono::steady_clock;

// Sizes of the exchange's packets: short ones, and those that fill an IP packet of 1500 and of 9000 bytes. With a key,
// the tag takes 28 of these bytes.
constexpr size_t kSizes[] = {256, 1472, 8972};
constexpr size_t kPoolBytes = size_t{128} << 10;  // bytes of all frames, which fit into L2
constexpr uint32_t kIp = 0x0a4d0001;

// Frames of one size. Each kind of work goes over all of them.
class AuthBench {
 public:
  AuthBench(size_t bytes, const RingKey& key)
      : bytes_(bytes),
        stride_((kFrameBytes + bytes + 127) / 64 * 64),
        count_(kPoolBytes / stride_),
        memory_(allocate_memory(2 * kPoolBytes)),
        sealer_(key, kIp),
        opener_(key, kIp) {
    const Flow flow{{}, {}, kIp, kIp + 1, 18400, 18400};
    for (size_t i = 0; i < count_; ++i) {
      for (size_t at = 0; at < bytes_; ++at) frame(i)[kFrameBytes + at] = static_cast<uint8_t>(at * 31 + i);
      write_headers(frame(i), flow, 0x28, bytes_);
      seal(i);
    }
  }

  void copy(size_t i) { std::memcpy(copy_of(i), frame(i), kFrameBytes + bytes_); }
  void check(size_t i) { sink_ = sink_ + crc32c(kCrcStart, frame(i) + kFrameBytes, bytes_); }
  void sum(size_t i) { seal_udp(copy_of(i), bytes_); }
  void seal(size_t i) { sealer_.seal(frame(i), bytes_ - kAuthBytes); }
  void open(size_t i) {
    if (opener_.open(frame(i), bytes_) == PacketVerifier::kForged)
      throw SetupError("the tag of a packet is wrong: this is a bug in gradlane");
  }
  void forge(size_t i) { sink_ = sink_ + opener_.open(frame(i), bytes_ - 1); }

  // Returns the ns per packet.
  template <class Work>
  double time(Work work) {
    const auto start = Clock::now();
    for (size_t i = 0; i < count_; ++i) work(i);
    const std::chrono::duration<double, std::nano> spent = Clock::now() - start;
    return spent.count() / static_cast<double>(count_);
  }

 private:
  [[nodiscard]] uint8_t* frame(size_t i) const noexcept { return memory_.get() + i * stride_; }

  [[nodiscard]] uint8_t* copy_of(size_t i) const noexcept { return frame(i) + kPoolBytes; }

  const size_t bytes_;
  const size_t stride_;
  const size_t count_;
  BenchMemory memory_;
  PacketSigner sealer_;
  PacketVerifier opener_;
  volatile size_t sink_ = 0;
};

constexpr std::array<const char*, 6> kWorks = {"memcpy", "crc32c", "udp checksum", "seal", "open", "refuse"};

struct Row {
  size_t bytes = 0;
  std::array<double, kWorks.size()> ns{};
};

Row measure(size_t bytes, const RingKey& key, size_t samples) {
  AuthBench bench(bytes, key);
  std::array<std::vector<double>, kWorks.size()> times;
  // The kinds of work take turns, so that other load on this machine affects them alike. open() gets the frames that
  // seal() has sealed.
  for (size_t i = 0; i < samples; ++i) {
    times[0].push_back(bench.time([&](size_t at) { bench.copy(at); }));
    times[1].push_back(bench.time([&](size_t at) { bench.check(at); }));
    times[2].push_back(bench.time([&](size_t at) { bench.sum(at); }));
    times[3].push_back(bench.time([&](size_t at) { bench.seal(at); }));
    times[4].push_back(bench.time([&](size_t at) { bench.open(at); }));
    times[5].push_back(bench.time([&](size_t at) { bench.forge(at); }));
  }
  Row row{.bytes = bytes, .ns = {}};
  for (size_t i = 0; i < times.size(); ++i) row.ns[i] = median(times[i]);
  return row;
}

void print_rows(std::span<const Row> rows) {
  fmt::print("ns per packet, and GB/s\n{:>6}", "bytes");
  for (const char* const name : kWorks) fmt::print(" {:>16}", name);
  fmt::print("\n");
  for (const Row& row : rows) {
    fmt::print("{:>6}", row.bytes);
    for (const double ns : row.ns) fmt::print(" {:>8.1f} {:>7.2f}", ns, static_cast<double>(row.bytes) / ns);
    fmt::print("\n");
  }
}

void print_json(std::span<const Row> rows) {
  nlohmann::json result = {{"rows", nlohmann::json::array()}};
  for (const Row& row : rows) {
    for (size_t i = 0; i < kWorks.size(); ++i) {
      result["rows"].push_back({{"work", kWorks[i]},
                                {"bytes", row.bytes},
                                {"ns", row.ns[i]},
                                {"bytes_per_second", static_cast<double>(row.bytes) / row.ns[i] * 1e9}});
    }
  }
  fmt::print("{}\n", result.dump(1));
}

}  // namespace

void run_auth_bench(const AuthBenchOptions& options) {
  std::array<uint8_t, 32> secret{};
  const RingKey key(secret);
  std::vector<Row> rows;
  for (const size_t bytes : kSizes) rows.push_back(measure(bytes, key, options.quick ? 50 : 1000));
  options.json ? print_json(rows) : print_rows(rows);
}

}  // namespace gradlane
