// beginnings_test.cc - tests of operations whose codec must scan the tensor first: refused, cancelled, late, different
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "collectives/exchange/coder.h"
#include "tests/collectives/exchange/exchange_fixture.h"

namespace gradlane::test::beginnings_test {
namespace {

using Refusal = Exchange::Refusal;

constexpr unsigned kWorld = 4;
constexpr float kOwed = 0.25F;

// Returns the codec of the first row for which `like` is true, if there is one.
template <class Like>
std::optional<Codec> codec_like(Like&& like) {
  for (const CodecRow& row : codec_table()) {
    if (like(row)) return find_codec(row.example);
  }
  return std::nullopt;
}
bool agrees(const CodecRow& row) { return row.agreement != Agreement::kNone && row.feedback; }
bool looks(const CodecRow& row) { return row.passes != 0 && row.agreement == Agreement::kNone; }

SimConfig config_of(const char* strategies) {
  SimConfig config;
  config.nodes = kWorld;
  config.topology = SimTopology::kSwitch;
  config.exchange.strategies = find_strategies(strategies);
  config.exchange.operation_timeout = 100 * kMillisecond;
  return config;
}

// An all-reduce whose tensor is scanned in this number of slices.
class Sum {
 public:
  explicit Sum(const Codec& codec, size_t slices = 8)
      : codec_(codec), count_(slices * kScanSlice), data_(kWorld, std::vector<float>(count_, 0.5F)) {
    owed_.assign(kWorld, std::vector<float>(codec.states() * count_, kOwed));
  }
  Operation of(unsigned rank) {
    Operation operation;
    operation.count = count_;
    operation.codec = codec_;
    operation.data = data_[rank].data();
    operation.residual = codec_.states() == 0 ? nullptr : owed_[rank].data();
    return operation;
  }
  // Returns whether all residuals of a rank are 0 (`cleared`), or unchanged.
  [[nodiscard]] bool owes(unsigned rank, bool cleared) const {
    return std::ranges::all_of(owed_[rank], [=](float value) { return value == (cleared ? 0 : kOwed); });
  }

 private:
  Codec codec_;
  size_t count_;
  std::vector<std::vector<float>> data_;
  std::vector<std::vector<float>> owed_;
};

void wait_until_whole(SimNet& net) {
  ASSERT_TRUE(net.run_until(
      [&] {
        for (unsigned i = 0; i < net.nodes(); ++i) {
          if (!net.node(i).exchange().ring_status().ready) return false;
        }
        return true;
      },
      kSecond));
}

void expect_all_failed(const SimNet& net, FailureCode code) {
  for (unsigned i = 0; i < net.nodes(); ++i) {
    ASSERT_EQ(net.node(i).completions().size(), 1U) << i;
    EXPECT_EQ(net.node(i).completions()[0].failure.code, code) << i;
  }
}

// ---- Refused

TEST(Beginnings, CodecsThatNeedOwnersAreRefusedByRings) {
  const auto codec = codec_like([](const CodecRow& row) { return !row.is_additive; });
  if (!codec) GTEST_SKIP();
  Sum sum(*codec, 1);
  SimNet ring(config_of("ring"));
  EXPECT_EQ(ring.try_submit(0, sum.of(0)).refusal, Refusal::kStrategy);
  SimNet both(config_of("ring,direct"));
  Operation named = sum.of(0);
  named.strategy = find_strategy("ring");
  EXPECT_EQ(both.try_submit(0, named).refusal, Refusal::kStrategy);
  for (unsigned i = 0; i < kWorld; ++i) (void)both.submit(i, sum.of(i));  // without a name, it uses direct
  EXPECT_TRUE(both.run_until_idle(kSecond));
  EXPECT_TRUE(all_succeeded(both));
  SimConfig config = config_of("ring");
  config.exchange.codec = *codec;
  EXPECT_THROW(SimNet{config}, SetupError);
}

TEST(Beginnings, AgreementNeedsLinksBetweenAll) {
  const auto codec = codec_like(agrees);
  if (!codec) GTEST_SKIP();
  Sum sum(*codec, 1);
  SimNet ring(config_of("ring"));
  EXPECT_EQ(ring.try_submit(0, sum.of(0)).refusal, Refusal::kStrategy);
  SimConfig config = config_of("ring");
  config.exchange.codec = *codec;
  EXPECT_THROW(SimNet{config}, SetupError);
}

TEST(Beginnings, GranulesMustFitIntoAPacket) {
  const auto codec =
      codec_like([](const CodecRow& row) { return row.granule == 256 && row.is_additive && row.width == 0; });
  if (!codec) GTEST_SKIP();
  SimConfig config = config_of("direct");
  const size_t least = codec->max_bytes(codec->granule()) + sizeof(LinkHeader) + sizeof(RunHeader);
  for (const size_t mtu : {least - 1, least}) {
    config.exchange.mtu = std::max(mtu, kMinPacket);
    if (config.exchange.mtu != mtu) continue;
    Sum sum(*codec, 1);
    SimNet net(config);
    EXPECT_EQ(net.try_submit(0, sum.of(0)).refusal, mtu == least ? Refusal::kNone : Refusal::kPacket);
  }
  config.exchange.mtu = least - 1;
  config.exchange.codec = *codec;
  EXPECT_THROW(SimNet{config}, SetupError);
}

TEST(Beginnings, PacketsThatAreTooShortSayWhatFits) {
  EXPECT_EQ(
      packet_fault(find_codec("qsgd:8/1024"), 548, 28).view(),
      "codec qsgd:8/1024: a chunk of 1024 floats can take 1032 bytes, but MTU 576 has room for 484: choose a smaller "
      "chunk, or raise `mtu` on all nodes");
  EXPECT_TRUE(packet_fault(find_codec("int8"), 256, 28)
                  .view()
                  .ends_with(": choose another codec, or raise `mtu` on all "
                             "nodes"));
  EXPECT_TRUE(
      packet_fault(find_codec("topk:1%"), 548, 28).view().starts_with("codec topk:1%: its shortest run of 256 "));
}

// ---- Failures

class Looking : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    codec_ = GetParam() ? codec_like(agrees) : codec_like(looks);
    if (!codec_) GTEST_SKIP();
  }
  std::optional<Codec> codec_;
};

TEST_P(Looking, MayBeCancelled) {
  SimNet net(config_of("ring,direct"));
  wait_until_whole(net);
  Sum sum(*codec_);
  for (unsigned i = 0; i < kWorld; ++i) (void)net.submit(i, sum.of(i));
  for (unsigned i = 0; i < 3; ++i) (void)net.step(kSecond);
  EXPECT_EQ(net.count(Counter::kReducePackets), 0U);
  net.abort(1, 0);
  EXPECT_TRUE(net.run_until_idle(net.now() + kSecond));
  expect_all_failed(net, FailureCode::kAborted);
  EXPECT_TRUE(sum.owes(1, false));  // the rank was still scanning
  for (unsigned i = 0; i < kWorld; ++i) EXPECT_TRUE(sum.owes(i, false) || sum.owes(i, true)) << i;
  // The next operation is not affected.
  Sum next(*codec_);
  for (unsigned i = 0; i < kWorld; ++i) (void)net.submit(i, next.of(i));
  EXPECT_TRUE(net.run_until_idle(net.now() + kSecond));
  for (unsigned i = 0; i < kWorld; ++i) EXPECT_FALSE(net.node(i).completions().back().failure) << i;
}

TEST_P(Looking, EndsWhereARankIsMissing) {
  SimNet net(config_of("direct"));
  wait_until_whole(net);
  Sum sum(*codec_, 1);
  for (const unsigned i : {0U, 1U, 3U}) (void)net.submit(i, sum.of(i));
  net.run_until(net.now() + 50 * kMillisecond);
  // if ranks must agree on a codec, nothing is sent before
  EXPECT_EQ(net.count(Counter::kReducePackets) != 0, !GetParam());
  EXPECT_TRUE(net.run_until_idle(net.now() + kSecond));
  for (const unsigned i : {0U, 1U, 3U}) {
    EXPECT_EQ(net.node(i).completions()[0].failure.code, FailureCode::kStuck) << i;
    EXPECT_TRUE(!GetParam() || net.node(i).completions()[0].failure.rank == 2) << i;
  }
}

// An operation waits until all lanes have scanned their parts of the tensor. A part whose operation has failed counts
// as scanned, so the other parts do not wait for it.
TEST_P(Looking, WaitsForThoseThatShareTheTensor) {
  SimNet net(config_of("direct"));
  wait_until_whole(net);
  Sum sum(*codec_, 2);
  std::vector<std::atomic<uint32_t>> scans_left(kWorld);
  for (unsigned i = 0; i < kWorld; ++i) {
    scans_left[i] = i == 0 ? 2 : 1;
    Operation part = sum.of(i);
    part.whole = part.count;
    part.scans_left = &scans_left[i];
    (void)net.submit(i, part);
  }
  net.run_until(net.now() + 20 * kMillisecond);
  EXPECT_EQ(scans_left[0], 1U);
  EXPECT_FALSE(net.idle());
  scans_left[0] = 0;
  EXPECT_TRUE(net.run_until_idle(net.now() + 50 * kMillisecond));
  EXPECT_TRUE(all_succeeded(net));

  scans_left[1] = 2;
  Operation lonely = sum.of(1);
  lonely.scans_left = &scans_left[1];
  (void)net.submit(1, lonely);
  EXPECT_TRUE(net.run_until_idle(net.now() + kSecond));
  EXPECT_EQ(net.node(1).completions().back().failure.code, FailureCode::kStuck);
  EXPECT_EQ(scans_left[1], 1U);  // its part counts as scanned, although the operation failed
}

TEST_P(Looking, FindsOutWhoMeansSomethingElse) {
  SimNet net(config_of("ring,direct"));
  Sum sum(*codec_);
  for (unsigned i = 0; i < kWorld; ++i) {
    Operation operation = sum.of(i);
    if (i == 2) {
      operation.codec = find_codec("raw");
      operation.residual = nullptr;
    }
    (void)net.submit(i, operation);
  }
  EXPECT_TRUE(net.run_until_idle(kSecond));
  expect_all_failed(net, FailureCode::kMismatch);
  for (unsigned i = 0; i < kWorld; ++i) EXPECT_EQ(net.node(i).completions()[0].failure.field, Field::kCodec);
}

INSTANTIATE_TEST_SUITE_P(, Looking, testing::Bool(),
                         [](const auto& each) { return each.param ? "WithAgreement" : "Alone"; });

}  // namespace
}  // namespace gradlane::test::beginnings_test
