// states_test.cc - tests of residuals of several arrays, and of codecs that some strategies cannot use
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tests/client/client_fixture.h"

namespace gradlane::test::states_test {
namespace {

constexpr size_t kCount = 2048;
constexpr size_t kSmall = 100;

class States : public testing::Test {
 protected:
  void open(FakeDaemon::Settings settings) {
    gl_.reset();
    daemon_.reset();
    settings.codecs = fake_codecs_of_papers();
    daemon_ = std::make_unique<FakeDaemon>(std::move(settings));
    gl_ = open_context(*daemon_);
    data_ = allocate(gl_, 2 * kCount);
    residual_ = allocate(gl_, 4 * kCount);
    how_.residual = residual_;
  }
  void SetUp() override { open({.world = 2}); }

  gradlane_code all_reduce(size_t count = kCount, gradlane_request* request = nullptr) {
    return gradlane_all_reduce(gl_.get(), data_, count, GRADLANE_FLOAT32, &how_, request);
  }
  gl_submission submit(const char* codec, size_t count = kCount) {
    how_.codec = codec;
    EXPECT_EQ(all_reduce(count), GRADLANE_OK) << gradlane_error(gl_.get());
    return daemon_->seen(0).back();
  }
  void expect_refused(const char* codec, const std::string& text, size_t count = kCount) {
    how_.codec = codec;
    const size_t before = daemon_->seen(0).size();
    EXPECT_EQ(all_reduce(count), GRADLANE_BAD_ARGUMENT);
    EXPECT_STREQ(gradlane_error(gl_.get()), text.c_str());
    EXPECT_EQ(daemon_->seen(0).size(), before);
  }

  std::unique_ptr<FakeDaemon> daemon_;
  Context gl_;
  float* data_ = nullptr;
  float* residual_ = nullptr;
  gradlane_how how_ = GRADLANE_HOW_INIT;
};

TEST_F(States, OneBehindTheOther) {
  EXPECT_EQ(submit("few:1").state_pitch, kCount);
  how_.state_pitch = 2 * kCount;
  const gl_submission apart = submit("few:1");
  EXPECT_EQ(apart.state_pitch, 2 * kCount);
  EXPECT_EQ(apart.flags, GL_FLAG_CODEC | GL_FLAG_RESIDUAL);
  EXPECT_EQ(submit("fixed:7").state_pitch, 0U) << "it has one";
}

TEST_F(States, ThatDoNotFit) {
  how_.state_pitch = kCount - 1;
  expect_refused("few:1",
                 "all_reduce: state_pitch is 2047 floats; allowed: at least the 2048 of data, and no more than fits in "
                 "memory");
  how_.state_pitch = SIZE_MAX / 8;
  EXPECT_EQ(all_reduce(), GRADLANE_BAD_ARGUMENT);
  how_.state_pitch = 4 * kCount;
  expect_refused(
      "few:1",
      "all_reduce: residual, of 2 arrays, needs 40960 bytes, but its buffer has only 32768 from that address on");
  how_.state_pitch = 0;
  how_.residual = residual_ + 3 * kCount;
  expect_refused(
      "few:1",
      "all_reduce: residual, of 2 arrays, needs 16384 bytes, but its buffer has only 8192 from that address on");
  how_.residual = data_;
  expect_refused("few:1", "all_reduce: data and residual, of 8192 bytes each, overlap");
}

// The caller divides a tensor into two operations. The state arrays of one operation lie between those of the other.
TEST_F(States, OfTwoOperationsBetweenEachOther) {
  open({.world = 2, .on_submission = [](unsigned, const gl_submission&) { return false; }});
  how_.codec = "few:1";
  how_.state_pitch = 2 * kCount;
  gradlane_request first = 0;
  ASSERT_EQ(all_reduce(kCount, &first), GRADLANE_OK) << gradlane_error(gl_.get());
  how_.residual = residual_ + kCount;
  gradlane_request second = 0;
  ASSERT_EQ(gradlane_all_reduce(gl_.get(), data_ + kCount, kCount, GRADLANE_FLOAT32, &how_, &second), GRADLANE_OK)
      << gradlane_error(gl_.get());
  // The second state array of each operation is in use.
  for (const size_t at : {size_t{2}, size_t{3}}) {
    EXPECT_EQ(gradlane_all_reduce(gl_.get(), residual_ + at * kCount, 1, GRADLANE_INT32, nullptr, nullptr),
              GRADLANE_BAD_ARGUMENT);
    EXPECT_SAYS(gl_.get(), "data is in use by request");
  }
  EXPECT_EQ(gradlane_free(gl_.get(), residual_), GRADLANE_BAD_ARGUMENT);
}

TEST_F(States, Parts) {
  open({.world = 2, .max_bytes = 4096});
  (void)submit("few:1");
  const auto seen = daemon_->seen(0);
  ASSERT_EQ(seen.size(), 2U);
  for (const gl_submission& part : seen) EXPECT_EQ(part.state_pitch, kCount) << "that of the whole";
  EXPECT_EQ(seen[1].residual_offset - seen[0].residual_offset, 4096U);
}

// All state arrays are zero after a failure. The memory between them is unchanged.
TEST_F(States, ZerosAfterAFailure) {
  open({.world = 2, .on_submission = [](unsigned, const gl_submission&) { return false; }});
  std::fill_n(residual_, 4 * kCount, 1.0F);
  how_.codec = "few:1";
  how_.state_pitch = 2 * kCount;
  gradlane_request request = 0;
  ASSERT_EQ(all_reduce(kCount, &request), GRADLANE_OK);
  ASSERT_TRUE(daemon_->await_seen(0, 1));
  daemon_->complete(0, daemon_->seen(0)[0].cookie, GRADLANE_FAILED, "it failed");
  EXPECT_EQ(gradlane_wait(gl_.get(), request, -1), GRADLANE_FAILED);
  for (size_t i = 0; i < 4 * kCount; ++i) {
    ASSERT_EQ(residual_[i], i / kCount % 2 == 0 ? 0.0F : 1.0F) << i;
  }
}

// A small sum adds the residuals of contributors and owners to the data. Other states are not added.
TEST_F(States, AddedBySmallSums) {
  for (const bool average : {false, true}) {
    for (const std::string codec : {"bits", "few:1"}) {
      data_[3] = 1.0F;
      residual_[3] = 10.0F;
      residual_[kSmall + 3] = 100.0F;
      residual_[2 * kSmall] = 7.0F;
      how_.average = average ? 1 : 0;
      EXPECT_EQ(submit(codec.c_str(), kSmall).flags, GL_FLAG_EXACT | (average ? GL_FLAG_AVERAGE : 0U));
      EXPECT_EQ(data_[3], codec == "bits" ? 111.0F : 11.0F);
      EXPECT_TRUE(std::all_of(residual_, residual_ + 2 * kSmall, [](float it) { return it == 0; }));
      EXPECT_EQ(residual_[2 * kSmall], 7.0F) << "beyond it";
    }
  }
}

TEST_F(States, UnknownNamesAreAnsweredWithAllThereAre) {
  expect_refused("bit", "there is no codec 'bit'; there are raw, fixed, bits, signs, few");
}

// few:1/256 is one name with a slash in it. A second name follows after another slash.
TEST_F(States, NamesWithANumberBehindASlash) {
  how_.strategy = "aggregator:1";
  EXPECT_EQ(submit("few:1/256").flags, GL_FLAG_CODEC | GL_FLAG_RESIDUAL);
  const gl_submission pair = submit("few:1/256/fixed:7");
  EXPECT_EQ(pair.flags, GL_FLAG_CODEC | GL_FLAG_RESIDUAL | GL_FLAG_BACK);
  EXPECT_NE(pair.codec, pair.back_codec);
}

// ---- Strategies of codecs

TEST_F(States, WhatDoesNotAddNeedsOwners) {
  EXPECT_EQ(submit("bits").strategy, 0U) << "not the ring, which is the first, but whatever can";
  how_.strategy = "direct";
  EXPECT_EQ(submit("bits").strategy, 258U);
  how_.strategy = "aggregator:1";
  EXPECT_EQ(submit("bits").strategy, 260U);
  how_.strategy = "ring";
  expect_refused("bits",
                 "all_reduce: bits does not add, so it needs strategy direct or aggregator; of these the daemon allows "
                 "direct, aggregator:1 (strategies in its configuration)");
  how_.residual = nullptr;
  EXPECT_EQ(submit("bits", kSmall).flags, GL_FLAG_EXACT) << "through no codec";

  open({.strategies = {{257, 31, GL_STRATEGY_LINKS, 0, "ring"}}});
  how_.strategy = nullptr;
  expect_refused("bits",
                 "all_reduce: bits does not add, so it needs strategy direct or aggregator; of these the daemon allows "
                 "none (strategies in its configuration)");
  open({.strategies = {}});
  EXPECT_EQ(submit("bits").strategy, 0U) << "a daemon that does not tell";
}

TEST_F(States, WhatRanksAgreeAboutNeedsLinks) {
  how_.residual = nullptr;
  EXPECT_EQ(submit("signs").strategy, 0U);
  how_.strategy = "ring";
  EXPECT_EQ(submit("signs").strategy, 257U);
  open({.strategies = {{257, 31, 0, 0, "ring"}}});
  how_.residual = nullptr;
  const std::string text =
      "all_reduce: signs needs links between all nodes, as all ranks agree on a number first: put `direct` in "
      "`strategies` of the daemons' configuration";
  expect_refused("signs", text);
  how_.strategy = nullptr;
  expect_refused("signs", text);
  EXPECT_EQ(submit("signs", kSmall).flags, GL_FLAG_EXACT);
}

}  // namespace
}  // namespace gradlane::test::states_test
