// auth.cc - `gradlane bench auth`: cost of envelopes and checksums of packets
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
#include "dataplane/frame/frame.h"
#include "dataplane/secure/envelope.h"
#include "tools/bench/memory.h"
#include "tools/bench/report.h"

namespace gradlane {
namespace {

using Clock = std::chrono::steady_clock;

// Sizes of datagrams: short ones, those that fill an IP packet of 1500 and of 9000 bytes, and the longest ones. With
// security, the envelope takes 28 of these bytes.
constexpr size_t kSizes[] = {256, 1472, 8972, 16384};
constexpr size_t kPoolBytes = size_t{128} << 10;  // bytes of all packets, which fit into L2
constexpr Envelope kEnvelope{.counter = 7, .key = 1, .kind = EnvelopeKind::kData, .reserved = 0};

constexpr std::array<const char*, 9> kWorks = {"memcpy",  "crc32c",  "udp checksum", "authenticate", "check",
                                               "encrypt", "decrypt", "encrypt-128",  "decrypt-128"};

// Packets of one size. Each kind of work goes over all of them.
class AuthBench {
 public:
  explicit AuthBench(size_t bytes)
      : bytes_(bytes),
        stride_((kFrameBytes + bytes + 127) / 64 * 64),
        count_(kPoolBytes / stride_),
        memory_(allocate_memory(2 * kPoolBytes)) {
    const Flow flow{{}, {}, 0x0a4d0001, 0x0a4d0002, 18400, 18400};
    for (PacketCipher& it : ciphers_) it.set_key({1, 2, 3});
    for (size_t i = 0; i < count_; ++i) {
      for (size_t at = 0; at < bytes_; ++at) packet(i)[at] = static_cast<uint8_t>(at * 31 + i);
      write_headers(packet(i) - kFrameBytes, flow, 0x28, bytes_);
    }
  }

  // Returns the ns per packet of a kind of work. Packets are opened in place, right after they were sealed.
  double time(size_t work) {
    const auto start = Clock::now();
    for (size_t i = 0; i < count_; ++i) {
      if (work == 0) {
        std::memcpy(copy_of(i), packet(i), bytes_);
      } else if (work == 1) {
        sink_ = sink_ + crc32c(kCrcStart, packet(i), bytes_);
      } else if (work == 2) {
        seal_udp(packet(i) - kFrameBytes, bytes_);
      } else if (PacketCipher& cipher = ciphers_[(work - 3) / 2]; work % 2 == 1) {
        cipher.seal(kEnvelope, packet(i), bytes_ - kEnvelopeBytes, copy_of(i));
      } else if (!cipher.open(kEnvelope, copy_of(i), bytes_)) {
        throw SetupError("the tag of a packet is wrong: this is a bug in gradlane");
      }
    }
    const std::chrono::duration<double, std::nano> spent = Clock::now() - start;
    return spent.count() / static_cast<double>(count_);
  }

 private:
  [[nodiscard]] uint8_t* packet(size_t i) const noexcept { return memory_.get() + i * stride_ + kFrameBytes; }
  [[nodiscard]] uint8_t* copy_of(size_t i) const noexcept { return packet(i) + kPoolBytes; }

  const size_t bytes_;
  const size_t stride_;
  const size_t count_;
  BenchMemory memory_;
  std::array<PacketCipher, 3> ciphers_{PacketCipher(Security::kAuthenticated), PacketCipher(Security::kEncrypted),
                                       PacketCipher(Security::kEncrypted128)};
  volatile size_t sink_ = 0;
};

struct Row {
  size_t bytes = 0;
  std::array<double, kWorks.size()> ns{};
};

// The kinds of work take turns, so that other load on this machine affects them alike.
Row measure(size_t bytes, size_t samples) {
  AuthBench bench(bytes);
  std::array<std::vector<double>, kWorks.size()> times;
  for (size_t i = 0; i < samples; ++i) {
    for (size_t work = 0; work < times.size(); ++work) times[work].push_back(bench.time(work));
  }
  Row row{.bytes = bytes, .ns = {}};
  for (size_t i = 0; i < times.size(); ++i) row.ns[i] = median(times[i]);
  return row;
}

void print_rows(std::span<const Row> rows) {
  fmt::print("AES-GCM by {}: ns per packet, and GB/s\n{:>12}", gcm_library(), "bytes");
  for (const Row& row : rows) fmt::print(" {:>16}", row.bytes);
  fmt::print("\n");
  for (size_t work = 0; work < kWorks.size(); ++work) {
    fmt::print("{:>12}", kWorks[work]);
    for (const Row& row : rows) {
      fmt::print(" {:>8.1f} {:>7.2f}", row.ns[work], static_cast<double>(row.bytes) / row.ns[work]);
    }
    fmt::print("\n");
  }
}

void print_json(std::span<const Row> rows) {
  nlohmann::json result = {{"library", gcm_library()}, {"rows", nlohmann::json::array()}};
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
  std::vector<Row> rows;
  for (const size_t bytes : kSizes) rows.push_back(measure(bytes, options.quick ? 50 : 1000));
  options.json ? print_json(rows) : print_rows(rows);
}

}  // namespace gradlane
