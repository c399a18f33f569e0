// trace_log_test.cc - tests of the records of a trace: they are complete and in order, and dropped ones are counted
#include "collectives/trace_log.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace gradlane::test::trace_log_test {
namespace {

constexpr size_t kOperationWords = sizeof(TraceOperation) / 8;

Nanos no_clock() noexcept { return 1; }

size_t length_of(uint64_t head) { return head >> 8 & 0xff; }

std::vector<uint64_t> all_of(TraceLog& log) {
  std::vector<uint64_t> words;
  log.take(words, ~size_t{0});
  return words;
}

// Returns the numbers of the operations in the records, and checks that all records are complete.
std::vector<uint64_t> numbers_of(const std::vector<uint64_t>& words) {
  std::vector<uint64_t> numbers;
  for (size_t i = 0; i < words.size(); i += length_of(words[i])) {
    EXPECT_NE(length_of(words[i]), 0U);
    EXPECT_LE(i + length_of(words[i]), words.size());
    if ((words[i] & 0xff) == static_cast<uint64_t>(TraceKind::kOperation)) numbers.push_back(words[i + 2]);
  }
  return numbers;
}

void operate(TraceLog& log, uint32_t number, Nanos now) {
  log.set_now(now);
  if (log.begin(0, 7, number)) log.end(0);
}

TEST(TraceLogTest, WhatDoesNotFitIsCounted) {
  TraceLog log(1, 2, 256, no_clock);
  log.start();
  const size_t fit = 256 / kOperationWords;
  for (uint32_t i = 0; i < fit + 3; ++i) operate(log, i, i * kSecond);
  EXPECT_EQ(log.dropped(), 3U);
  const std::vector<uint64_t> numbers = numbers_of(all_of(log));
  ASSERT_EQ(numbers.size(), fit);
  for (size_t i = 0; i < fit; ++i) EXPECT_EQ(numbers[i], i);
  // Records may also cross the end of the ring.
  for (uint32_t i = 100; i < 105; ++i) operate(log, i, i * kSecond);
  EXPECT_EQ(numbers_of(all_of(log)), (std::vector<uint64_t>{100, 101, 102, 103, 104}));
}

TEST(TraceLogTest, IsHandedOutInPieces) {
  TraceLog log(1, 2, 1024, no_clock);
  log.start();
  for (uint32_t i = 0; i < 10; ++i) operate(log, i, i * kSecond);
  std::vector<uint64_t> words;
  unsigned pieces = 0;
  for (; !log.empty(); ++pieces) log.take(words, kOperationWords + 1);
  EXPECT_EQ(numbers_of(words).size(), 10U);
  EXPECT_EQ(pieces, 5U);
}

TEST(TraceLogTest, OfTooManyOperationsSomeAreLeftOut) {
  TraceLog log(1, 2, size_t{1} << 16, no_clock);
  log.start();
  constexpr uint32_t kMany = 20'000;
  for (uint32_t i = 0; i < kMany; ++i) operate(log, i, i * 10 * kMicrosecond);
  const std::vector<uint64_t> numbers = numbers_of(all_of(log));
  EXPECT_EQ(numbers.size() + log.skipped(), kMany);
  EXPECT_GT(numbers.size(), 20U);
  // Until the log knows how many operations there are, it records more of them than later.
  EXPECT_LT(numbers.size(), 12 * TraceLog::kMostOperations);
  // At the end, only operations whose numbers are multiples of a power of two are recorded. When there are few
  // operations again, all of them are.
  EXPECT_EQ(numbers.back() % 64, 0U);
  for (uint32_t i = 0; i < 64; ++i) operate(log, kMany + 1 + i, (i + 1) * kSecond);
  EXPECT_EQ(numbers_of(all_of(log)).back(), kMany + 64);
}

TEST(TraceLogTest, WaitsAddUp) {
  TraceLog log(2, 2, 1024, no_clock);
  log.start();
  log.set_now(100);
  ASSERT_TRUE(log.begin(1, 7, 3));
  log.wait(1, TraceCause::kLink, 1);
  log.set_now(100 + kMillisecond);
  log.wait(1, TraceCause::kLink, 1);
  log.wait(1, TraceCause::kPackets, 1);
  log.set_now(100 + kMillisecond + 5);  // this wait is too short for a record of its own
  log.wait(1, TraceCause::kWork, 0);
  log.set_now(100 + 2 * kMillisecond + 5);
  const TraceOperation* const record = log.operation(1);
  ASSERT_NE(record, nullptr);
  EXPECT_EQ(log.operation(0), nullptr);
  log.end(1);
  EXPECT_EQ(log.operation(1), nullptr);
  EXPECT_EQ(record->waited[static_cast<size_t>(TraceCause::kLink)], kMillisecond);
  EXPECT_EQ(record->waited[static_cast<size_t>(TraceCause::kPackets)], 5U);
  EXPECT_EQ(record->waited[static_cast<size_t>(TraceCause::kWork)], kMillisecond);
  const std::vector<uint64_t> words = all_of(log);
  EXPECT_EQ(words.size(), 2 * sizeof(TraceWait) / 8 + kOperationWords);
}

TEST(TraceLogTest, LinksCountShortWaitsToo) {
  TraceLog log(1, 3, 1 << 14, no_clock);
  log.start();
  Nanos now = 100;
  log.set_now(now);
  ASSERT_TRUE(log.begin(0, 7, 3));
  for (unsigned i = 0; i < 3 * TraceLog::kMostWaits; ++i) {
    log.wait(0, TraceCause::kLink, 2);
    log.set_now(now += 10);
    log.wait(0, TraceCause::kPackets, 2);
    log.set_now(now += 10);
  }
  log.end(0);
  log.close(std::vector<unsigned>{0, 2});
  const std::vector<uint64_t> words = all_of(log);
  const auto at = words.end() - 2 * 3;  // head, rank and time of two neighbours, after all other records
  EXPECT_EQ(std::vector<uint64_t>(at + 1, at + 3), (std::vector<uint64_t>{0, 0}));
  EXPECT_EQ(std::vector<uint64_t>(at + 4, at + 6), (std::vector<uint64_t>{2, 30 * TraceLog::kMostWaits}));
}

TEST(TraceLogTest, TwoThreads) {
  TraceLog log(1, 2, 4096, no_clock);
  log.start();
  constexpr uint32_t kMany = 2000;
  std::jthread worker([&log] {
    for (uint32_t i = 0; i < kMany; ++i) operate(log, i, i * kSecond);
    log.close({});
  });
  std::vector<uint64_t> words;
  while (!log.over() || !log.empty()) log.take(words, 100);
  const std::vector<uint64_t> numbers = numbers_of(words);
  EXPECT_EQ(numbers.size() + log.dropped(), kMany);
  for (size_t i = 1; i < numbers.size(); ++i) ASSERT_LT(numbers[i - 1], numbers[i]);
}

}  // namespace
}  // namespace gradlane::test::trace_log_test
