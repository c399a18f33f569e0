// results_test.cc - tests of the hashes of results: which bytes they cover, and when they are there
#include <cstdint>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "tests/client/client_fixture.h"

namespace gradlane::test::results_test {
namespace {

constexpr size_t kCount = 1021;  // no multiple of the hash's 32 bytes
constexpr unsigned kWorld = 3;
constexpr unsigned kRank = 1;
constexpr uint64_t kUnset = 7;
constexpr uint64_t kOfNothing = 0xef46db3751d8e999;

class Results : public testing::Test {
 protected:
  void open(FakeDaemon::Settings settings) {
    gl_.reset();
    daemon_ = std::make_unique<FakeDaemon>(std::move(settings));
    gl_ = open_context(*daemon_);
    data_ = allocate<int32_t>(gl_, kWorld * kCount);
    out_ = allocate<int32_t>(gl_, kWorld * kCount);
    std::iota(data_, data_ + kWorld * kCount, 1);
    std::iota(out_, out_ + kWorld * kCount, 9000);
    how_.hash = &hash_;
  }
  void SetUp() override { open({.rank = kRank, .world = kWorld}); }

  static uint64_t hash_of(const int32_t* data, size_t count) { return gradlane_hash(data, count * sizeof(int32_t)); }
  // Checks that the call has succeeded, and returns the hash.
  uint64_t of(gradlane_code code) {
    EXPECT_EQ(code, GRADLANE_OK) << gradlane_error(gl_.get());
    return std::exchange(hash_, kUnset);
  }

  std::unique_ptr<FakeDaemon> daemon_;
  Context gl_;
  int32_t* data_ = nullptr;
  int32_t* out_ = nullptr;
  uint64_t hash_ = kUnset;
  gradlane_how how_ = GRADLANE_HOW_INIT;
};

TEST_F(Results, OfWhatThisRankReceives) {
  gradlane_context* const gl = gl_.get();
  const auto type = GRADLANE_INT32;
  const uint64_t all = hash_of(data_, kWorld * kCount);
  const uint64_t block = hash_of(data_ + kRank * kCount, kCount);
  const uint64_t one = hash_of(data_, kCount);
  EXPECT_EQ(of(gradlane_all_reduce(gl, data_, kCount, type, &how_, nullptr)), one);
  EXPECT_EQ(of(gradlane_reduce_scatter(gl, data_, kCount, type, &how_, nullptr)), block);
  EXPECT_EQ(of(gradlane_all_gather(gl, data_, kCount, type, &how_, nullptr)), all);
  EXPECT_EQ(of(gradlane_broadcast(gl, data_, kCount, type, 0, &how_, nullptr)), one);
  EXPECT_EQ(of(gradlane_broadcast(gl, data_, kCount, type, kRank, &how_, nullptr)), one);
  EXPECT_EQ(of(gradlane_scatter(gl, data_, kCount, type, 0, &how_, nullptr)), block);
  EXPECT_EQ(of(gradlane_reduce(gl, data_, kCount, type, kRank, &how_, nullptr)), one);
  EXPECT_EQ(of(gradlane_reduce(gl, data_, kCount, type, 0, &how_, nullptr)), kOfNothing);
  EXPECT_EQ(of(gradlane_gather(gl, data_, kCount, type, kRank, &how_, nullptr)), all);
  EXPECT_EQ(of(gradlane_gather(gl, data_, kCount, type, 2, &how_, nullptr)), kOfNothing);
  EXPECT_EQ(of(gradlane_all_to_all(gl, data_, out_, kCount, type, &how_, nullptr)), hash_of(out_, kWorld * kCount));
  EXPECT_EQ(of(gradlane_barrier(gl, &how_, nullptr)), kOfNothing);
  EXPECT_EQ(of(gradlane_all_reduce(gl, nullptr, 0, type, &how_, nullptr)), kOfNothing);
}

TEST_F(Results, OfBlocksThatLieApart) {
  std::vector<std::vector<int32_t>> blocks(kWorld, std::vector<int32_t>(kCount));
  std::vector<void*> rows;
  for (auto& it : blocks) rows.push_back(it.data());
  how_.blocks = rows.data();
  how_.part_bytes = 4096;
  std::vector<int32_t> own(kCount);
  std::iota(own.begin(), own.end(), 5);
  uint64_t hash = of(gradlane_reduce_scatter(gl_.get(), own.data(), kCount, GRADLANE_INT32, &how_, nullptr));
  EXPECT_EQ(hash, hash_of(own.data(), kCount));
  std::iota(own.begin(), own.end(), 5);
  hash = of(gradlane_all_gather(gl_.get(), own.data(), kCount, GRADLANE_INT32, &how_, nullptr));
  EXPECT_EQ(blocks[kRank], own);
  std::vector<int32_t> all;
  for (const auto& it : blocks) all.insert(all.end(), it.begin(), it.end());
  EXPECT_EQ(hash, hash_of(all.data(), all.size()));
}

TEST_F(Results, OfOrdinaryMemory) {
  std::vector<int32_t> data(5 * kCount);
  std::iota(data.begin(), data.end(), 3);
  how_.part_bytes = 4096;
  EXPECT_EQ(of(gradlane_all_reduce(gl_.get(), data.data(), data.size(), GRADLANE_INT32, &how_, nullptr)),
            hash_of(data.data(), data.size()));
}

TEST_F(Results, InAWorldOfOne) {
  open({});
  EXPECT_EQ(of(gradlane_all_gather(gl_.get(), data_, kCount, GRADLANE_INT32, &how_, nullptr)), hash_of(data_, kCount));
}

TEST_F(Results, ThereWhenARequestIsOver) {
  open({.on_submission = [](auto...) { return false; }});
  gradlane_request request = 0;
  ASSERT_EQ(gradlane_all_reduce(gl_.get(), data_, kCount, GRADLANE_INT32, &how_, &request), GRADLANE_OK);
  ASSERT_TRUE(daemon_->await_seen(0, 1));
  EXPECT_EQ(gradlane_test(gl_.get(), request), GRADLANE_PENDING);
  EXPECT_EQ(hash_, kUnset);
  daemon_->complete(0, daemon_->seen(0)[0].cookie);
  EXPECT_EQ(of(gradlane_wait(gl_.get(), request, -1)), hash_of(data_, kCount));
  ASSERT_EQ(gradlane_all_reduce(gl_.get(), data_, kCount, GRADLANE_INT32, &how_, &request), GRADLANE_OK);
  ASSERT_TRUE(daemon_->await_seen(0, 2));
  daemon_->complete(0, daemon_->seen(0)[1].cookie, GRADLANE_FAILED, "a failure");
  EXPECT_EQ(gradlane_wait(gl_.get(), request, -1), GRADLANE_FAILED);
  EXPECT_EQ(hash_, kUnset);
}

// Tasks with GRADLANE_HASHES form a running hash. Only results that all ranks share belong to it.
TEST_F(Results, OfTasks) {
  ASSERT_EQ(gradlane_share(gl_.get()), GRADLANE_OK);
  const auto run = [&](int collective, unsigned flags) {
    gradlane_task task = GRADLANE_TASK_INIT;
    task.collective = collective;
    task.type = GRADLANE_INT32;
    task.flags = flags;
    task.data = data_;
    task.count = collective == GRADLANE_BARRIER ? 0 : kCount;
    gradlane_outcome outcome = GRADLANE_OUTCOME_INIT;
    if (gradlane_add(gl_.get(), &task, &outcome) == GRADLANE_PENDING) (void)gradlane_next(gl_.get(), &outcome);
    EXPECT_EQ(outcome.code, GRADLANE_OK) << static_cast<const char*>(outcome.text);
    gradlane_figures figures{};
    figures.struct_size = sizeof(figures);
    EXPECT_EQ(gradlane_get_figures(gl_.get(), &figures), GRADLANE_OK);
    return std::pair(figures.hashed_results, figures.results_hash);
  };
  uint64_t expected[2] = {0, hash_of(data_, kCount)};
  EXPECT_EQ(run(GRADLANE_ALL_REDUCE, 0), std::pair(uint64_t{0}, uint64_t{0}));
  const uint64_t first = gradlane_hash(expected, sizeof(expected));
  EXPECT_EQ(run(GRADLANE_ALL_REDUCE, GRADLANE_HASHES), std::pair(uint64_t{1}, first));
  EXPECT_EQ(run(GRADLANE_REDUCE_SCATTER, GRADLANE_HASHES), std::pair(uint64_t{1}, first));
  EXPECT_EQ(run(GRADLANE_BARRIER, GRADLANE_HASHES), std::pair(uint64_t{1}, first));
  expected[0] = first;
  const uint64_t second = gradlane_hash(expected, sizeof(expected));
  EXPECT_EQ(run(GRADLANE_BROADCAST, GRADLANE_HASHES), std::pair(uint64_t{2}, second));
  expected[0] = second;
  expected[1] = hash_of(data_, kWorld * kCount);
  EXPECT_EQ(run(GRADLANE_ALL_GATHER, GRADLANE_HASHES),
            std::pair(uint64_t{3}, gradlane_hash(expected, sizeof(expected))));
}

}  // namespace
}  // namespace gradlane::test::results_test
