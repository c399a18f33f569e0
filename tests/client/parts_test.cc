// parts_test.cc - tests of tensors that are longer than the daemon takes: one request in several parts
#include <cstdint>
#include <set>

#include "tests/client/client_fixture.h"

namespace gradlane::test::parts_test {
namespace {

constexpr uint64_t kMost = uint64_t{1} << 20;
constexpr size_t kWorld = 3;
constexpr size_t kCount = 1'000'000;  // floats; 4 parts

class Parts : public testing::Test {
 protected:
  void open(FakeDaemon::Settings settings) {
    gl_.reset();
    daemon_.reset();
    settings.lanes = 2;
    settings.world = kWorld;
    daemon_ = std::make_unique<FakeDaemon>(std::move(settings));
    gl_ = open_context(*daemon_);
    data_ = allocate(gl_, kWorld * kCount);
  }
  void SetUp() override { open({.max_bytes = kMost}); }

  // Returns the submissions, which are the same on both lanes. They cover elements 0 to `count` in order, without gaps,
  // in parts of at most kMost bytes.
  std::vector<gl_submission> parts(size_t count, size_t width, size_t blocks, uint64_t tag) {
    const auto seen = daemon_->seen(0);
    EXPECT_EQ(daemon_->seen(1).size(), seen.size());
    size_t first = 0;
    std::set<uint64_t> tags;
    for (const gl_submission& it : seen) {
      EXPECT_EQ(it.offset, first * width);
      EXPECT_LE(it.count * width * blocks, kMost);
      EXPECT_EQ(it.pitch, blocks > 1 ? count : 0);
      EXPECT_TRUE(tags.insert(it.tag).second) << "two parts with one tag";
      first += it.count;
    }
    EXPECT_EQ(first, count);
    EXPECT_EQ(seen.front().tag, tag);
    return seen;
  }
  static bool later(unsigned, const gl_submission&) { return false; }

  std::unique_ptr<FakeDaemon> daemon_;
  Context gl_;
  float* data_ = nullptr;
  gradlane_how how_ = GRADLANE_HOW_INIT;
};

TEST_F(Parts, AllReduce) {
  ASSERT_EQ(gradlane_all_reduce(gl_.get(), data_, kCount, GRADLANE_FLOAT32, nullptr, nullptr), GRADLANE_OK)
      << gradlane_error(gl_.get());
  EXPECT_EQ(parts(kCount, 4, 1, 0).size(), 4U);
  gradlane_figures figures{};
  figures.struct_size = sizeof(figures);
  ASSERT_EQ(gradlane_get_figures(gl_.get(), &figures), GRADLANE_OK);
  EXPECT_EQ(figures.operations, 1U);
}

TEST_F(Parts, Residuals) {
  float* const residual = allocate(gl_, kCount);
  how_.residual = residual;
  how_.has_tag = 1;
  how_.tag = 77;
  how_.timeout_ms = 5;
  ASSERT_EQ(gradlane_all_reduce(gl_.get(), data_, kCount, GRADLANE_FLOAT32, &how_, nullptr), GRADLANE_OK)
      << gradlane_error(gl_.get());
  const auto all = parts(kCount, 4, 1, 77);
  for (const gl_submission& it : all) {
    EXPECT_EQ(it.residual_offset - all[0].residual_offset, it.offset - all[0].offset);
    EXPECT_EQ(it.flags, GL_FLAG_RESIDUAL) << "the last part is small, but what it is a part of is not";
    EXPECT_EQ(it.timeout_ms, 5U);
  }
}

TEST_F(Parts, BlocksOfRanks) {
  ASSERT_EQ(gradlane_reduce_scatter(gl_.get(), data_, kCount, GRADLANE_FLOAT32, nullptr, nullptr), GRADLANE_OK);
  EXPECT_EQ(parts(kCount, 4, kWorld, 0).size(), 12U);
  SetUp();
  ASSERT_EQ(gradlane_all_gather(gl_.get(), data_, kCount / 2 - 1, GRADLANE_FLOAT64, nullptr, nullptr), GRADLANE_OK);
  EXPECT_EQ(parts(kCount / 2 - 1, 8, kWorld, 0).size(), 12U);
}

TEST_F(Parts, Broadcast) {
  ASSERT_EQ(gradlane_broadcast(gl_.get(), data_, kMost + 1, GRADLANE_BYTES, 0, nullptr, nullptr), GRADLANE_OK);
  EXPECT_EQ(parts(kMost + 1, 1, 1, 0).size(), 2U);
}

TEST_F(Parts, WhatFitsIsOne) {
  ASSERT_EQ(gradlane_all_reduce(gl_.get(), data_, kMost / 4, GRADLANE_FLOAT32, nullptr, nullptr), GRADLANE_OK);
  ASSERT_EQ(gradlane_barrier(gl_.get(), nullptr, nullptr), GRADLANE_OK);
  EXPECT_EQ(daemon_->seen(0).size(), 2U);
}

// A tensor has the same parts with every daemon that takes operations of 64 MiB or more.
TEST_F(Parts, AreTheSameForAllDaemonsThatTakeEnough) {
  for (const uint64_t most : {uint64_t{64} << 20, uint64_t{100'000'000}, uint64_t{256} << 20, uint64_t{1} << 38}) {
    open({.max_bytes = most});
    float* const large = allocate(gl_, 20'000'000);
    ASSERT_EQ(gradlane_all_reduce(gl_.get(), large, 20'000'000, GRADLANE_FLOAT32, nullptr, nullptr), GRADLANE_OK);
    const auto seen = daemon_->seen(0);
    ASSERT_EQ(seen.size(), 2U);
    EXPECT_EQ(seen[0].count, size_t{16} << 20);
  }
}

// The part size is a power of two. So a tensor has the same parts with other daemons that take nearly as much.
TEST_F(Parts, OfADaemonThatTakesLess) {
  open({.max_bytes = kMost + 12345});
  ASSERT_EQ(gradlane_all_reduce(gl_.get(), data_, kCount, GRADLANE_FLOAT32, nullptr, nullptr), GRADLANE_OK);
  EXPECT_EQ(daemon_->seen(0).at(0).count, kMost / 4);
}

TEST_F(Parts, AnElementOfEachRankMustFit) {
  open({.max_bytes = 16});
  EXPECT_EQ(gradlane_all_gather(gl_.get(), data_, 1, GRADLANE_FLOAT64, nullptr, nullptr), GRADLANE_BAD_ARGUMENT);
  EXPECT_SAYS(gl_.get(), "exchange.max_tensor");
  EXPECT_EQ(gradlane_all_gather(gl_.get(), data_, 7, GRADLANE_FLOAT32, nullptr, nullptr), GRADLANE_OK);
  EXPECT_EQ(daemon_->seen(0).size(), 7U);
}

// If one part fails, the request fails once. Parts that have not begun are submitted as cancelled.
TEST_F(Parts, Failure) {
  open({.max_bytes = 4096, .on_submission = later});
  gradlane_request request = 0;
  ASSERT_EQ(gradlane_all_reduce(gl_.get(), data_, 100 * 1024, GRADLANE_FLOAT32, nullptr, &request), GRADLANE_OK);
  ASSERT_TRUE(daemon_->await_seen(0, GL_SLOTS) && daemon_->await_seen(1, GL_SLOTS));
  daemon_->complete(0, 3);
  daemon_->complete(1, 3, GRADLANE_FAILED, "rank 2 hangs");
  EXPECT_EQ(gradlane_test(gl_.get(), request), GRADLANE_PENDING);
  // The other parts in flight are cancelled, and one more part is submitted in place of the failed one.
  ASSERT_TRUE(daemon_->await_seen(0, 2 * GL_SLOTS) && daemon_->await_seen(1, 2 * GL_SLOTS));
  for (uint64_t cookie = 1; cookie <= 100; ++cookie) {
    if (cookie == 3) continue;
    while (daemon_->seen(0).back().cookie < cookie && cookie > GL_SLOTS) {
      ASSERT_EQ(gradlane_test(gl_.get(), request), GRADLANE_PENDING);
    }
    for (unsigned lane = 0; lane < 2; ++lane) daemon_->complete(lane, cookie, GRADLANE_FAILED, "cancelled on rank 0");
  }
  EXPECT_EQ(gradlane_wait(gl_.get(), request, 10000), GRADLANE_FAILED);
  EXPECT_SAYS(gl_.get(), "rank 2 hangs (part 3 of 100; ");
  EXPECT_SAYS(gl_.get(), "exchange.max_tensor sets the size of parts: it must be equal");
  unsigned given_up = 0;
  for (const gl_submission& it : daemon_->seen(0)) given_up += (it.flags & GL_FLAG_CANCELLED) != 0 ? 1 : 0;
  EXPECT_EQ(given_up, 36U);
}

TEST_F(Parts, ResumeFailsWhatHasNotBegun) {
  open({.max_bytes = 4096, .on_submission = later});
  gradlane_request request = 0;
  ASSERT_EQ(gradlane_all_reduce(gl_.get(), data_, 100 * 1024, GRADLANE_FLOAT32, nullptr, &request), GRADLANE_OK);
  ASSERT_EQ(gradlane_resume(gl_.get(), 0), GRADLANE_OK);
  for (uint64_t cookie = 1; cookie <= GL_SLOTS; ++cookie) {
    EXPECT_EQ(gradlane_test(gl_.get(), request), GRADLANE_PENDING);
    for (unsigned lane = 0; lane < 2; ++lane) daemon_->complete(lane, cookie);
  }
  EXPECT_EQ(gradlane_wait(gl_.get(), request, 10000), GRADLANE_FAILED) << "though all that had begun ended well";
  EXPECT_SAYS(gl_.get(), "called gradlane_resume()");
}

}  // namespace
}  // namespace gradlane::test::parts_test
