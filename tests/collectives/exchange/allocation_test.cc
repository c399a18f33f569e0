// allocation_test.cc - tests that an exchange allocates only when it is made: not for operations, losses or failures
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <new>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "tests/collectives/exchange/counted_net.h"
#include "tests/collectives/exchange/exchange_fixture.h"

// Sanitizers have their own malloc(), so the test replaces it only without them.
#if defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define GRADLANE_OWN_MALLOC 0
#endif
#endif
#ifndef GRADLANE_OWN_MALLOC
#define GRADLANE_OWN_MALLOC 1
#endif

// ---- Counting. All allocations of the program come here. Only those of the exchange are counted.

namespace {

void count_allocation() {
  using namespace gradlane::test;
  if (g_counting) ++g_allocations;
}

void* counted(size_t bytes, size_t alignment = alignof(std::max_align_t)) {
  count_allocation();
  const size_t rounded = (std::max<size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
  void* const memory = std::aligned_alloc(alignment, rounded);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(size_t bytes) { return counted(bytes); }
void* operator new[](size_t bytes) { return counted(bytes); }
void* operator new(size_t bytes, std::align_val_t alignment) { return counted(bytes, static_cast<size_t>(alignment)); }
void* operator new[](size_t bytes, std::align_val_t alignment) {
  return counted(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

#if defined(__GLIBC__) && GRADLANE_OWN_MALLOC
// These functions count allocations that do not use `operator new`.
extern "C" {
void* __libc_malloc(size_t bytes);
void* __libc_calloc(size_t count, size_t bytes);
void* __libc_realloc(void* memory, size_t bytes);
}
extern "C" void* malloc(size_t bytes) {
  count_allocation();
  return __libc_malloc(bytes);
}
extern "C" void* calloc(size_t count, size_t bytes) {
  count_allocation();
  return __libc_calloc(count, bytes);
}
extern "C" void* realloc(void* memory, size_t bytes) {
  count_allocation();
  return __libc_realloc(memory, bytes);
}
#endif

namespace gradlane::test::allocation_test {
namespace {

class Allocation : public testing::Test {
 protected:
  void SetUp() override { g_allocations = 0; }
  void TearDown() override { EXPECT_EQ(g_allocations, 0U); }
};

// ---- Tests

TEST_F(Allocation, IsNoticed) {
  watched([] { std::make_unique<int>(1).reset(); });
  EXPECT_EQ(std::exchange(g_allocations, 0), 1U);
#if defined(__GLIBC__) && GRADLANE_OWN_MALLOC
  void* volatile memory = watched([] { return std::malloc(1); });
  std::free(memory);
  EXPECT_EQ(std::exchange(g_allocations, 0), 1U);
#endif
}

std::vector<JobSpec> everything(unsigned world, const StrategyId& strategy) {
  using enum ElementType;
  std::vector<JobSpec> specs;
  for (const std::string codec : {"raw", "bf16", "fp16", "inceptionn:10", "inceptionn:10,truncate", "fixed:10"}) {
    for (const JobSpec& spec : all_kinds(world, 9001, 901, codec)) specs.push_back(spec);
  }
  for (const ElementType type : {kFloat64, kFloat16, kBfloat16, kInt32, kInt64, kBytes}) {
    specs.push_back({.kind = OpKind::kAllReduce, .count = 3001, .type = type});
    specs.push_back({.kind = OpKind::kBroadcast, .count = 3001, .type = type});
    specs.push_back({.kind = OpKind::kAllReduce, .count = 3001, .codec = "pack", .type = type});
  }
  specs.push_back({.kind = OpKind::kAllReduce, .count = 5003, .codec = "fixed:10", .feedback = true});
  specs.push_back({.kind = OpKind::kAllReduce, .count = 5003, .codec = "inceptionn:8", .fill = Fill::kWild});
  for (JobSpec& spec : specs) {
    if (supports(strategy, spec.kind)) spec.strategy = strategy.name().view();
  }
  return specs;
}

void run_everything(unsigned world, const Troubles& troubles, const char* strategy = "ring") {
  ExchangeConfig common;
  common.strategies = {find_strategy(strategy)};
  Net net(world, common);
  net.troubles = troubles;
  std::vector<Job> jobs = make_jobs(everything(world, common.strategies.front()), world, world);
  std::vector<unsigned> all(world);
  std::iota(all.begin(), all.end(), 0U);
  for (size_t next = 0; next < jobs.size();) {
    for (size_t k = 0; k < 8 && next < jobs.size(); ++k, ++next) {
      for (unsigned i = 0; i < world; ++i) {
        ASSERT_EQ(net.submit(i, jobs[next].operation(i)).refusal, Exchange::Refusal::kNone);
      }
    }
    ASSERT_TRUE(net.run(all, next, net.now() + 30 * kSecond)) << "world " << world << ", to " << jobs[next - 1].spec();
  }
  for (const Job& job : jobs) EXPECT_TRUE(job.right());
  EXPECT_EQ(net.count(Counter::kOperationsFailed), 0U);
  EXPECT_GT(net.count(Counter::kOperationsDone), 0U);
  if (world == 1) return;
  EXPECT_EQ(troubles.busy > 0, net.count(Counter::kTransmitBusy) > 0);
  EXPECT_EQ(troubles.no_buffer > 0, net.count(Counter::kNoBuffer) > 0);
  EXPECT_EQ(troubles.corrupt > 0, net.count(Counter::kBadCrc) > 0);
  for (unsigned i = 0; i < world; ++i) {
    EXPECT_LE(net.node(i).peak(), Exchange::buffers(net.node(i).config()));
  }
}

TEST_F(Allocation, NoneForAnyOperation) {
  for (const unsigned world : {1U, 2U, 3U, 5U}) run_everything(world, {});
}

TEST_F(Allocation, NoneForLosses) {
  for (const unsigned world : {2U, 3U, 5U}) {
    run_everything(world, {.loss = 0.05, .duplicate = 0.05, .corrupt = 0.02, .busy = 0.05, .no_buffer = 0.05});
  }
}

// Tests all rows of the table of codecs, with all their states. codecs_test.cc checks the results.
TEST_F(Allocation, NoneForAnyCodec) {
  constexpr unsigned kWorld = 3;
  constexpr size_t kCount = 40'003;
  ExchangeConfig common;
  common.strategies = {find_strategy("direct")};
  Net net(kWorld, common);
  std::vector<std::vector<float>> tensors(kWorld, std::vector<float>(kCount, 0.3F));
  std::vector<std::vector<float>> states(kWorld, std::vector<float>(kMostStates * kCount));
  const std::vector<unsigned> all = {0, 1, 2};
  size_t done = 0;
  for (const CodecRow& row : codec_table()) {
    Operation operation;
    operation.count = kCount;
    operation.codec = find_codec(row.example);
    for (const unsigned rank : all) {
      operation.data = tensors[rank].data();
      operation.residual = row.feedback ? states[rank].data() : nullptr;
      ASSERT_EQ(net.submit(rank, operation).refusal, Exchange::Refusal::kNone) << row.example;
    }
    ASSERT_TRUE(net.run(all, ++done, net.now() + 30 * kSecond)) << row.example;
  }
  EXPECT_EQ(net.count(Counter::kOperationsFailed), 0U);
}

TEST_F(Allocation, NoneUnderAnyStrategy) {
  const std::pair<const char*, unsigned> cases[] = {{"direct", 4}, {"rings:2", 4}, {"aggregator:1", 3}};
  for (const auto& [strategy, world] : cases) {
    SCOPED_TRACE(strategy);
    run_everything(world, {}, strategy);
    run_everything(world, {.loss = 0.05, .duplicate = 0.05, .corrupt = 0.02, .busy = 0.05, .no_buffer = 0.05},
                   strategy);
  }
}

TEST_F(Allocation, NoneForGarbage) {
  Net net(3);
  std::vector<float> floats(1000);
  Operation operation;
  operation.count = floats.size();
  operation.data = floats.data();
  (void)net.submit(0, operation);
  Random random(5);
  std::array<uint8_t, kMtu> bytes{};
  for (unsigned i = 0; i < 2000; ++i) {
    net.step();
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random.next());
    if (i % 2 == 0) bytes[0] = 0x47, bytes[1] = 0x4c;
    net.node(0).receive(static_cast<unsigned>(random.below(4)), bytes.data(), random.below(kMtu), net.now());
  }
  EXPECT_GT(net.node(0).exchange().counters()[Counter::kBadCrc], 0U);
  EXPECT_GT(net.node(0).exchange().counters()[Counter::kUnknownPeer], 0U);
}

TEST_F(Allocation, NoneForRefusals) {
  Net net(2);
  Operation operation;
  operation.count = size_t{1} << 40;
  EXPECT_EQ(net.submit(0, operation).refusal, Exchange::Refusal::kTooLarge);
  operation.count = 1;
  EXPECT_EQ(net.submit(0, operation).refusal, Exchange::Refusal::kBad);
  while (net.submit(0, barrier()).refusal == Exchange::Refusal::kNone) {
  }
}

// ---- Failures, each with large tensors in flight

class Failing : public Allocation {
 protected:
  void begin(unsigned world, const ExchangeConfig& common = {}) {
    net_ = std::make_unique<Net>(world, common);
    tensors_.assign(world, std::vector<float>(200'000, 1));
  }

  [[nodiscard]] Operation operation(unsigned i, size_t count = 200'000) {
    Operation operation;
    operation.count = count;
    operation.data = tensors_[i].data();
    operation.codec = find_codec("raw");
    return operation;
  }
  void submit_all() {
    for (unsigned i = 0; i < net_->world(); ++i) (void)net_->submit(i, operation(i));
  }
  void steps(unsigned count) {
    for (unsigned i = 0; i < count; ++i) net_->step();
  }
  // Expects that `ended` operations end on these nodes, the last of them with this code.
  void expect(std::initializer_list<unsigned> nodes, FailureCode code, size_t ended = 1) {
    ASSERT_TRUE(net_->run(nodes, ended, net_->now() + 20 * kSecond));
    for (const unsigned i : nodes) {
      EXPECT_EQ(net_->node(i).failure().code, code) << failure_text(net_->node(i).failure());
    }
  }

  std::unique_ptr<Net> net_;
  std::vector<std::vector<float>> tensors_;
};

TEST_F(Failing, Abort) {
  begin(3);
  submit_all();
  steps(60);
  watched([&] { net_->node(1).exchange().abort(0); });
  expect({0, 1, 2}, FailureCode::kAborted);
  submit_all();
  expect({0, 1, 2}, FailureCode::kNone, 2);
}

TEST_F(Failing, Mismatch) {
  begin(3);
  for (unsigned i = 0; i < 3; ++i) (void)net_->submit(i, operation(i, i == 2 ? 200'000 : 199'999));
  expect({0, 1, 2}, FailureCode::kMismatch);
  submit_all();
  expect({0, 1, 2}, FailureCode::kNone, 2);
}

TEST_F(Failing, Silence) {
  begin(4);
  submit_all();
  steps(60);
  net_->node(2).stopped = true;
  expect({0, 1, 3}, FailureCode::kSilent);
  net_->node(2).stopped = false;
  expect({2}, FailureCode::kSilent);
  submit_all();
  expect({0, 1, 2, 3}, FailureCode::kNone, 2);
}

TEST_F(Failing, Restart) {
  begin(3);
  submit_all();
  steps(60);
  net_->node(0).restart();
  expect({1, 2}, FailureCode::kRestarted);
}

TEST_F(Failing, Close) {
  begin(3);
  submit_all();
  steps(60);
  watched([&] { net_->node(0).exchange().close(); });
  expect({0, 1, 2}, FailureCode::kClosed);
}

TEST_F(Failing, NoRing) {
  ExchangeConfig config;
  config.start_timeout = 300 * kMillisecond;
  begin(3, config);
  net_->node(2).stopped = true;
  submit_all();
  expect({0, 1}, FailureCode::kNoRing);
}

TEST_F(Failing, Stuck) {
  ExchangeConfig config;
  config.operation_timeout = 300 * kMillisecond;
  begin(3, config);
  (void)net_->submit(0, operation(0));
  expect({0}, FailureCode::kStuck);
}

TEST_F(Failing, Refused) {
  begin(2);
  net_->node(1).config().codec = find_codec("bf16");
  net_->node(1).restart();
  submit_all();
  expect({0, 1}, FailureCode::kRefused);
}

}  // namespace
}  // namespace gradlane::test::allocation_test
