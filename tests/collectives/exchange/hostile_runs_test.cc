// hostile_runs_test.cc - tests with handmade runs in valid packets, each with the one counter that must count it
#include <cmath>
#include <functional>
#include <vector>

#include "tests/collectives/exchange/hostile_fixture.h"

namespace gradlane::test::hostile_runs_test {
namespace {

TEST_F(Hostile, RunsThatDoNotFitTheirPacket) {
  const auto expect = [&](const std::string& what, const Bytes& runs, Counter counter) {
    for (const unsigned from : {kBefore, kBehind}) expect_counted(what, from, data(from, runs), counter);
  };
  const Bytes good = sums(1, 0, kGranule);
  for (const size_t bytes : {size_t{1}, size_t{19}, size_t{20}, good.size() - 1}) {
    expect("cut", Bytes(good.begin(), good.begin() + static_cast<ptrdiff_t>(bytes)), Counter::kBadRun);
  }
  Bytes more = good;
  more.push_back(1);
  expect_counted("one byte more", kBefore, data(kBefore, more), Counter::kBadRun);
  more.back() = 0;
  more.insert(more.end(), 18, 1);
  expect_counted("19 bytes more", kBefore, data(kBefore, more), Counter::kBadRun);
  expect_counted("padding alone", kBefore, data(kBefore, Bytes(19)), Counter::kBadRun);
  expect_counted("a run of padding alone", kBefore, data(kBefore, one_run(run(Phase::kPadding, 0, 0, 0), 100)),
                 Counter::kBadRoute);
  for (const unsigned bytes : {129U, 1000U, 65535U}) {
    Bytes runs = good;
    auto header = load<RunHeader>(runs.data());
    header.bytes = static_cast<uint16_t>(bytes);
    store(runs.data(), header);
    expect("bytes", runs, Counter::kBadRun);
  }
  // The packet has as many run headers as fit.
  Bytes many;
  for (unsigned i = 0; i < 71; ++i) append_run(many, run(Phase::kReduce, 1, i, kGranule), Bytes());
  expect_counted("headers", kBefore, data(kBefore, many), Counter::kBadBlock);
  expect_counted("headers of who sends no sums", kBehind, data(kBehind, many), Counter::kBadRoute);
  expect_unharmed();
}

TEST_F(Hostile, PaddingIsNotLookedAt) {
  unsigned granule = 0;
  for (const size_t length : {1U, 19U, 20U, 21U, 500U}) {
    Bytes runs = sums(1, granule++, kGranule);
    if (length < sizeof(RunHeader)) {
      runs.resize(runs.size() + length);
    } else {
      RunHeader padding = run(Phase::kPadding, 200, 0xffffffff, 77);
      padding.bytes = 0xffff;
      append_run(runs, padding, Bytes(length - sizeof(RunHeader), 0xff));
    }
    expect_counted("padding", kBefore, data(kBefore, runs), Counter::kDelivered);
    ++next_[kBefore];
  }
}

TEST_F(Hostile, RunsOutsideTheirOperation) {
  struct Case {
    const char* what;
    std::function<void(RunHeader&)> change;
    Counter counter;
  };
  const size_t last = 312;  // last granule of block 1
  const std::vector<Case> cases = {
      {"phase 6", [](RunHeader& r) { r.phase = static_cast<Phase>(6); }, Counter::kBadRoute},
      {"phase 255", [](RunHeader& r) { r.phase = static_cast<Phase>(255); }, Counter::kBadRoute},
      {"block 3", [](RunHeader& r) { r.block = 3; }, Counter::kBadBounds},
      {"block 255", [](RunHeader& r) { r.block = 255; }, Counter::kBadBounds},
      {"sums of a block that begins here", [](RunHeader& r) { r.block = 0; }, Counter::kBadRoute},
      {"results of the block that ends here",
       [](RunHeader& r) {
         r.phase = Phase::kGather;
         r.block = kVictim;
       },
       Counter::kBadRoute},
      {"behind the block", [=](RunHeader& r) { r.first = static_cast<uint32_t>(last) + 1; }, Counter::kBadBounds},
      {"far behind", [](RunHeader& r) { r.first = 0xffffffff; }, Counter::kBadBounds},
      {"first * granule wraps in 32 bits", [](RunHeader& r) { r.first = 0x08000000; }, Counter::kBadBounds},
      {"first + count wraps",
       [](RunHeader& r) {
         r.first = 0xffffffff;
         r.count = 65535;
       },
       Counter::kBadBounds},
      {"beyond the end",
       [](RunHeader& r) {
         r.first = 300;
         r.count = 32 * 20;
       },
       Counter::kBadBounds},
      {"longer than the block", [](RunHeader& r) { r.count = 65535; }, Counter::kBadBounds},
      {"count 0", [](RunHeader& r) { r.count = 0; }, Counter::kBadBounds},
      {"count 1", [](RunHeader& r) { r.count = 1; }, Counter::kBadBounds},
      {"half a granule more", [](RunHeader& r) { r.count = 48; }, Counter::kBadBounds},
      {"digest", [](RunHeader& r) { r.digest ^= 1; }, Counter::kBadDigest},
      {"codec", [](RunHeader& r) { r.codec = static_cast<uint8_t>(CodecId::kFixed); }, Counter::kBadCodec},
      {"unknown codec", [](RunHeader& r) { r.codec = 200; }, Counter::kBadCodec},
      {"parameter", [](RunHeader& r) { r.param = 1; }, Counter::kBadCodec},
      {"payload of another length", [](RunHeader& r) { r.count = 64; }, Counter::kBadBlock},
      {"next operation", [](RunHeader& r) { r.operation = 2; }, Counter::kNotStarted},
      {"far operation", [](RunHeader& r) { r.operation = 0x7fffffff; }, Counter::kNotStarted},
  };
  for (const Case& each : cases) {
    RunHeader header = run(Phase::kReduce, 1, 0, kGranule);
    each.change(header);
    const Bytes bad = one_run(header, 128);
    expect_counted(each.what, kBefore, data(kBefore, bad), each.counter);
    // Now the bad run follows a good one in the same packet. The victim must drop both.
    Bytes behind = sums(1, 5, kGranule);
    behind.insert(behind.end(), bad.begin(), bad.end());
    expect_counted(each.what, kBefore, data(kBefore, behind), each.counter);
  }
  expect_unharmed();
}

// The victim still expects only the partial sums of block 1.
TEST_F(Hostile, MoreElementsThanExpected) {
  RunHeader header = run(Phase::kReduce, 1, 0, 94 * kGranule);
  header.operation = 1;
  header.digest = digest(kCodedElements, ElementType::kFloat32, CodecId::kFixed, 10);
  header.codec = static_cast<uint8_t>(CodecId::kFixed);
  header.param = 10;
  Bytes runs;
  append_run(runs, header, Bytes(94 / 2));
  header.count = kGranule;
  header.first = 93;
  append_run(runs, header, Bytes(1));
  expect_counted("twice", kBefore, data(kBefore, runs), Counter::kBadBounds);
  expect_unharmed();
}

// The payload is blocks of zeros of fixed:10, with wrong or impossible tags.
TEST_F(Hostile, PayloadThatIsNoBlock) {
  RunHeader header = run(Phase::kReduce, 1, 0, 64);
  header.operation = 1;
  header.digest = digest(kCodedElements, ElementType::kFloat32, CodecId::kFixed, 10);
  header.codec = static_cast<uint8_t>(CodecId::kFixed);
  header.param = 10;
  const auto expect = [&](const char* what, const Bytes& payload) {
    Bytes runs;
    append_run(runs, header, payload);
    expect_counted(what, kBefore, data(kBefore, runs), Counter::kBadBlock);
  };
  expect("nothing", Bytes());
  expect("a byte more", Bytes(2));
  expect("tags without what they announce", Bytes(1, 0x55));
  expect("all ones", Bytes(16, 0xff));
  Bytes one(16);
  one[0] = 1;
  expect("one tag", one);
  expect_unharmed();
}

TEST_F(Hostile, ControlRuns) {
  RunHeader header = run(Phase::kAbort, 0, 0, 0);
  const auto expect = [&](const char* what, size_t payload, Counter counter) {
    for (const unsigned from : {kBefore, kBehind}) {
      expect_counted(what, from, data(from, one_run(header, payload)), counter);
    }
  };
  for (const size_t bytes : {size_t{0}, sizeof(AbortNotice) - 1, sizeof(AbortNotice) + 1, size_t{1000}}) {
    expect("abort of another length", bytes, Counter::kBadRun);
  }
  for (const uint32_t number : {2U, 3U, 0x7fffffffU}) {
    header.operation = number;
    expect("abort of what has not started", sizeof(AbortNotice), Counter::kNotStarted);
  }
  header = run(Phase::kStart, 0, 0, 0);
  for (const size_t bytes : {size_t{0}, kRingDescriptor - 1, kRingDescriptor + 1, kPlainDescriptor + 1,
                             sizeof(Descriptor) - 1, sizeof(Descriptor) + 1, size_t{1000}}) {
    expect("start of another length", bytes, Counter::kBadRun);
  }
  // Offers are numbers from 0 on. All other values are refused.
  for (const float offer : {-1.0F, -0.0F, std::nanf(""), HUGE_VALF, -HUGE_VALF}) {
    uint8_t start[kMostStart];
    (void)write_start(descriptor_of(kSum.count, ElementType::kInt32, CodecId::kRaw, 0), offer, start);
    Bytes runs;
    append_run(runs, header, start);
    expect_counted("offer", kBehind, data(kBehind, runs), Counter::kBadRun);
  }
  expect("start with an offer that is cut off", kMostStart - 1, Counter::kBadRun);
  // No rank can have started such operations, because it has at most 256 in flight.
  for (const uint32_t number : {100'000U, 0x7ffffffeU, 0x7fffffffU, 0x80000000U}) {
    header.operation = number;
    expect("start of what cannot be", sizeof(Descriptor), Counter::kNotStarted);
  }
  expect_unharmed();
}

// ---- Packets that a neighbour could have sent

// An abort ends the operation, whatever rank and code it states. Other operations go on.
TEST_F(Hostile, AbortsAreBelieved) {
  RunHeader header = run(Phase::kAbort, 200, 0, 0);  // claims to come from rank 200
  AbortNotice notice{};
  notice.rank = 60'000;
  notice.code = 255;
  notice.field = 255;
  notice.ours = notice.theirs = ~uint64_t{0};
  uint8_t bytes[sizeof(notice)];
  store(bytes, notice);
  Bytes runs;
  append_run(runs, header, bytes);
  expect_counted("abort", kBefore, data(kBefore, runs), Counter::kDelivered);
  const SimCompletion* const end = ring_.end_of(sum_, kVictim);
  ASSERT_NE(end, nullptr);
  EXPECT_TRUE(end->failure);
  EXPECT_FALSE(failure_text(end->failure).empty());
  // The abort used the sequence number of a packet of rank 0, which now counts as a duplicate. So that link may stall
  // for good. Nobody waits longer than the limit of an operation, and the next session works.
  ring_.submit(sum_, kBehind);
  ring_.submit(coded_, kBehind);
  EXPECT_TRUE(ring_.finish(std::array{sum_, coded_}, 61 * kSecond));
  ring_.net().close(kVictim);
  ring_.run_for(10 * kMillisecond);
  EXPECT_TRUE(ring_.works());
}

// A packet has an abort, and then elements of the same operation. They must be ignored, because the operation has ended
// by then.
TEST_F(Hostile, ElementsBehindTheirAbort) {
  AbortNotice notice{};
  notice.code = static_cast<uint8_t>(FailureCode::kAborted);
  uint8_t bytes[sizeof(notice)];
  store(bytes, notice);
  RunHeader header = run(Phase::kAbort, 0, 0, 0);
  header.operation = 1;
  Bytes runs;
  append_run(runs, header, bytes);
  // These are all partial sums that the victim still expects. Without the abort, it would forward them.
  header = run(Phase::kReduce, 1, 0, 94 * kGranule);
  header.operation = 1;
  header.digest = digest(kCodedElements, ElementType::kFloat32, CodecId::kFixed, 10);
  header.codec = static_cast<uint8_t>(CodecId::kFixed);
  header.param = 10;
  append_run(runs, header, Bytes(94 / 2));
  const uint64_t discarded = count(Counter::kRunsDiscarded);
  expect_counted("abort and sums", kBefore, data(kBefore, runs), Counter::kDelivered);
  EXPECT_TRUE(ring_.failed(coded_, kVictim, {FailureCode::kAborted, {0}}));
  EXPECT_EQ(count(Counter::kRunsDiscarded), discarded + 1);
  EXPECT_EQ(count(Counter::kOperationsFailed), 1U);
}

// Some elements arrive twice, and others never. The first elements that arrive are used.
TEST_F(Hostile, ElementsThatComeTwice) {
  Bytes runs;
  for (unsigned i = 0; i < 3; ++i) {
    append_run(runs, run(Phase::kGather, 0, i, 2 * kGranule), Bytes(256));
    append_run(runs, run(Phase::kReduce, 1, 2 * i, 2 * kGranule), Bytes(256));
  }
  expect_counted("twice", kBefore, data(kBefore, Bytes(runs.begin(), runs.begin() + 5 * 276)), Counter::kDelivered);
  ring_.submit(sum_, kBehind);
  ring_.submit(coded_, kBehind);
  EXPECT_TRUE(ring_.finish(std::array{sum_, coded_}, 61 * kSecond));
  ring_.net().close(kVictim);
  ring_.run_for(10 * kMillisecond);
  EXPECT_TRUE(ring_.works());
}

}  // namespace
}  // namespace gradlane::test::hostile_runs_test
