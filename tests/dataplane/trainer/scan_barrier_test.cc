// scan_barrier_test.cc - exchanges on threads of their own that scan one tensor, while one of them fails
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <latch>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "collectives/exchange/exchange.h"
#include "dataplane/trainer/scan_barrier.h"

namespace gradlane::test::lane_looks_test {
namespace {

constexpr size_t kCount = 16 * kScanSlice;  // elements of each lane
constexpr float kOwed = 0.25F;

// A rank that is alone sends nothing.
class NoPackets final : public PacketIo {
 public:
  Packet allocate() noexcept override { return {}; }
  void release(Packet) noexcept override {}
  bool transmit(unsigned, Packet, size_t) noexcept override { return false; }
};

struct Tensor {
  std::vector<float> data = std::vector<float>(2 * kCount, 0.5F);
  std::vector<float> owed;
  ScanBarrier looks{2};
};

Operation part_of(Tensor& tensor, const Codec& codec, unsigned lane) {
  Operation part;
  part.codec = codec;
  part.whole = 2 * kCount;
  part.offset = lane * kCount;
  part.count = kCount;
  part.data = tensor.data.data() + part.offset;
  part.residual = tensor.owed.data() + part.offset;
  part.state_pitch = part.whole;
  part.scans_left = &tensor.looks.of(0).scans_left;
  return part;
}

// Runs the operation of a lane until it completes. Lane 1 cancels it after `polls` polls.
Completion run(Tensor& tensor, const Codec& codec, unsigned lane, unsigned polls) {
  ExchangeConfig config;
  config.incarnation = 1;
  config.max_bytes = kCount * sizeof(float);
  NoPackets io;
  Exchange exchange(config, io);
  const auto submitted = exchange.submit(part_of(tensor, codec, lane), kSecond);
  EXPECT_EQ(submitted.refusal, Exchange::Refusal::kNone);
  Completion completion;
  for (unsigned i = 0; !exchange.next_completion(completion); ++i) {
    if (lane == 1 && i == polls) exchange.abort(submitted.id);
    exchange.poll(kSecond + i * kMicrosecond);
  }
  return completion;
}

// A lane that fails leaves its residuals unchanged, in whatever order the lanes run. So scans of other lanes see the
// old values, and so does a retry.
TEST(ScanBarrier, OneThatFailsLeavesWhatOthersLookAt) {
  for (const CodecRow& row : codec_table()) {
    if (row.passes == 0 || !row.feedback) continue;
    const Codec codec = find_codec(row.example);
    for (const unsigned polls : {0U, 1U, 20U}) {
      Tensor tensor;
      tensor.owed.assign(codec.states() * 2 * kCount, kOwed);
      std::vector<Completion> ends(2);
      std::latch both(2);
      const auto lane = [&](unsigned number) {
        both.arrive_and_wait();
        ends[number] = run(tensor, codec, number, polls);
      };
      std::thread other(lane, 0);
      lane(1);
      other.join();
      EXPECT_FALSE(ends[0].failure) << row.word;
      EXPECT_EQ(ends[1].failure.code, FailureCode::kAborted) << row.word;
      EXPECT_FALSE(ends[1].residual_cleared) << row.word;
      for (size_t state = 0; state < codec.states(); ++state) {
        const auto part = std::span(tensor.owed).subspan((2 * state + 1) * kCount, kCount);
        EXPECT_TRUE(std::ranges::all_of(part, [](float value) { return value == kOwed; })) << row.word;
      }
    }
  }
}

}  // namespace
}  // namespace gradlane::test::lane_looks_test
