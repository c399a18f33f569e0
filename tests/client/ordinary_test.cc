// ordinary_test.cc - tests of data in ordinary memory, which the library copies to shared memory and back, part by part
#include <numeric>
#include <vector>

#include "tests/client/client_fixture.h"

namespace gradlane::test::ordinary_test {
namespace {

constexpr size_t kPart = 8192;
constexpr size_t kFloats = kPart / sizeof(float);
constexpr unsigned kBlocks = 4;  // number of staging blocks in a world of one, if links are used

class Ordinary : public testing::Test {
 protected:
  void open(FakeDaemon::Settings settings) {
    gl_.reset();
    daemon_.reset();
    daemon_ = std::make_unique<FakeDaemon>(std::move(settings));
    gl_ = open_context(*daemon_);
    how_.part_bytes = kPart;
  }
  void SetUp() override {
    open({.lanes = 2, .on_submission = [this](unsigned lane, const gl_submission& it) {
            if (lane == 0 && adds_) add_one(it);
            return !later_;
          }});
  }
  // Adds one to each element of a submission, in place of a sum.
  void add_one(const gl_submission& it) {
    auto* const floats = reinterpret_cast<float*>(memory_ + it.offset);
    for (size_t i = 0; i < it.count; ++i) floats[i] += 1;
  }
  // Finds the library's staging blocks. They lie in the only segment, which a first small sum creates.
  void find_memory() {
    adds_ = false;
    float one = 0;
    ASSERT_EQ(gradlane_all_reduce(gl_.get(), &one, 1, GRADLANE_FLOAT32, &how_, nullptr), GRADLANE_OK)
        << gradlane_error(gl_.get());
    ASSERT_EQ(daemon_->segments(), 1U);
    memory_ = daemon_->bytes(daemon_->seen(0).at(0).segment);
    adds_ = true;
  }
  gradlane_code start(std::vector<float>& data) {
    return gradlane_all_reduce(gl_.get(), data.data(), data.size(), GRADLANE_FLOAT32, &how_, &request_);
  }
  void complete_all(size_t from, int32_t code = GRADLANE_OK) {
    for (const unsigned lane : {0U, 1U}) {
      const auto seen = daemon_->seen(lane);
      for (size_t i = from; i < seen.size(); ++i) daemon_->complete(lane, seen[i].cookie, code, "it was cut");
    }
  }

  std::unique_ptr<FakeDaemon> daemon_;
  Context gl_;
  gradlane_how how_ = GRADLANE_HOW_INIT;
  gradlane_request request_ = 0;
  uint8_t* memory_ = nullptr;
  std::atomic<bool> adds_{false};
  std::atomic<bool> later_{false};
};

TEST_F(Ordinary, EachElementGoesThereAndBack) {
  find_memory();
  for (const size_t count : {size_t{1}, kFloats - 1, kFloats, kFloats + 1, 9 * kFloats + 77}) {
    std::vector<float> data(count + 1);
    std::iota(data.begin(), data.end(), 0.0F);
    const size_t before = daemon_->seen(0).size();
    ASSERT_EQ(gradlane_all_reduce(gl_.get(), data.data(), count, GRADLANE_FLOAT32, &how_, nullptr), GRADLANE_OK)
        << gradlane_error(gl_.get());
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(data[i], static_cast<float>(i + 1)) << count;
    EXPECT_EQ(data[count], static_cast<float>(count)) << "behind the data";
    EXPECT_EQ(daemon_->seen(0).size() - before, (count - 1) / kFloats + 1);
  }
  std::vector<float> data(kFloats + 5);
  EXPECT_EQ(gradlane_broadcast(gl_.get(), data.data(), data.size(), GRADLANE_FLOAT32, 0, &how_, nullptr), GRADLANE_OK);
  EXPECT_EQ(data.back(), 1);
  // Shared memory is divided into the same parts, but is not copied.
  float* const shared = allocate(gl_, 3 * kFloats);
  adds_ = false;
  const size_t before = daemon_->seen(0).size();
  EXPECT_EQ(gradlane_all_reduce(gl_.get(), shared, 3 * kFloats, GRADLANE_FLOAT32, &how_, nullptr), GRADLANE_OK);
  ASSERT_EQ(daemon_->seen(0).size() - before, 3U);
  EXPECT_EQ(daemon_->seen(0)[before + 1].offset - daemon_->seen(0)[before].offset, kPart);
}

// A few staging blocks serve any number of parts and requests. Each part that is in flight has its own block.
TEST_F(Ordinary, PartsWaitForBlocks) {
  find_memory();
  later_ = true;
  std::vector<float> data(10 * kFloats, 5);
  std::vector<float> more(2 * kFloats, 6);
  ASSERT_EQ(start(data), GRADLANE_OK);
  const gradlane_request first = request_;
  ASSERT_EQ(start(more), GRADLANE_OK);
  size_t done = 1;
  for (const size_t all : {1 + kBlocks, 1 + 2 * kBlocks, 1 + 3 * kBlocks}) {
    ASSERT_TRUE(daemon_->await_seen(0, all) && daemon_->await_seen(1, all));
    EXPECT_EQ(gradlane_test(gl_.get(), request_), GRADLANE_PENDING);
    const auto seen = daemon_->seen(0);
    ASSERT_EQ(seen.size(), all);
    for (size_t i = done; i < all; ++i) {
      for (size_t k = done; k < i; ++k) EXPECT_NE(seen[i].offset, seen[k].offset);
    }
    complete_all(done);
    done = all;
    (void)gradlane_wait(gl_.get(), request_, 0);
  }
  EXPECT_EQ(gradlane_wait(gl_.get(), first, 10'000), GRADLANE_OK);
  for (const float it : data) ASSERT_EQ(it, 6);
}

TEST_F(Ordinary, WhatFailedIsNotCopiedBack) {
  find_memory();
  later_ = true;
  std::vector<float> data(2 * kFloats, 5);
  ASSERT_EQ(start(data), GRADLANE_OK);
  ASSERT_TRUE(daemon_->await_seen(0, 3) && daemon_->await_seen(1, 3));
  complete_all(1, GRADLANE_FAILED);
  EXPECT_EQ(gradlane_wait(gl_.get(), request_, 10'000), GRADLANE_FAILED);
  EXPECT_SAYS(gl_.get(), "it was cut (part ");
  for (const float it : data) ASSERT_EQ(it, 5);
  later_ = false;
  EXPECT_EQ(gradlane_all_reduce(gl_.get(), data.data(), data.size(), GRADLANE_FLOAT32, &how_, nullptr), GRADLANE_OK);
}

TEST_F(Ordinary, TheDaemonGoesMeanwhile) {
  find_memory();
  later_ = true;
  std::vector<float> data(20 * kFloats, 5);
  ASSERT_EQ(start(data), GRADLANE_OK);
  daemon_->hang_up();
  EXPECT_EQ(gradlane_wait(gl_.get(), request_, 10'000), GRADLANE_DAEMON_GONE);
  EXPECT_EQ(data.back(), 5);
}

TEST_F(Ordinary, WhatIsRefused) {
  std::vector<float> data(kFloats);
  const auto expect_bad = [&](gradlane_code code, const char* words) {
    EXPECT_EQ(code, GRADLANE_BAD_ARGUMENT);
    EXPECT_SAYS(gl_.get(), words);
  };
  for (const size_t bytes : {size_t{1}, size_t{2048}, size_t{12288}, size_t{128} << 20}) {
    how_.part_bytes = bytes;
    expect_bad(start(data), "a power of two");
  }
  how_.part_bytes = kPart;
  expect_bad(gradlane_all_reduce(gl_.get(), nullptr, 8, GRADLANE_FLOAT32, &how_, nullptr), "data is NULL");
  how_.part_bytes = 0;
  expect_bad(start(data), "not in a buffer of gradlane_alloc()");
  how_.part_bytes = kPart;
  expect_bad(gradlane_all_gather(gl_.get(), data.data(), 8, GRADLANE_FLOAT32, &how_, nullptr),
             "part_bytes is only for");
  how_.codec = "fixed:10";
  how_.residual = data.data();
  std::vector<float> large(2048);
  expect_bad(start(large), "residual at");
  how_ = GRADLANE_HOW_INIT;
  how_.part_bytes = kPart;
  later_ = true;
  ASSERT_EQ(start(large), GRADLANE_OK);
  const gradlane_request running = request_;
  expect_bad(start(large), "in use by request");
  gradlane_cancel(gl_.get(), running);
}

TEST_F(Ordinary, BlocksThatAreTooShort) {
  later_ = true;
  std::vector<float> data(12 * kFloats);
  ASSERT_EQ(start(data), GRADLANE_OK);
  ASSERT_TRUE(daemon_->await_seen(1, kBlocks));
  // The library's table of blocks is longer than the number that this world uses.
  how_.part_bytes = 2 * kPart;
  std::vector<float> more(4 * kFloats);
  EXPECT_EQ(start(more), GRADLANE_OK) << gradlane_error(gl_.get());
  open({.memory = 0});
  EXPECT_EQ(start(more), GRADLANE_NO_MEMORY);
  open({.flags = GL_WELCOME_LOCAL_REDUCE | GL_WELCOME_ALONE, .on_submission = [](auto...) { return false; }});
  ASSERT_EQ(start(data), GRADLANE_OK);
  ASSERT_TRUE(daemon_->await_seen(0, 3));
  EXPECT_EQ(gradlane_test(gl_.get(), request_), GRADLANE_PENDING);
  EXPECT_EQ(daemon_->seen(0).size(), 3U) << "of a node alone";
}

}  // namespace
}  // namespace gradlane::test::ordinary_test
