// trainer_hostile_test.cc - ring contents that no client library writes: each is one fault, and harms no other trainer
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <functional>
#include <random>

#include "compress/encoded_tensor.h"
#include "tests/dataplane/trainer/trainer_values.h"
#include "tests/thorough.h"

namespace gradlane::test::trainer_hostile_test {
namespace {

constexpr size_t kMaxBytes = size_t{64} << 10;
constexpr size_t kSegmentBytes = size_t{128} << 10;

TrainerConfig config() {
  TrainerConfig it{.nodes = 2, .lanes = 2};
  it.max_bytes = kMaxBytes;
  it.strategies = find_strategies("ring,aggregator:0");
  return it;
}

// Does what a session does after a fault: removes the trainer, and attaches a new one. The other ranks resume, because
// they know of the fault.
void replace(Trainers& trainers, unsigned rank) {
  trainers[rank].detach();
  trainers[rank].forget_faults();
  trainers.come(rank);
  trainers.world.run_for(kMillisecond);
  for (unsigned other = 0; other < trainers.world.ranks(); ++other) {
    if (other != rank) trainers[other].resume();
  }
}

gl_submission fp32(size_t count) { return submission_of(OpKind::kAllReduce, ElementType::kFloat32, count); }

struct Bad {
  const char* what;
  TrainerFault fault;
  std::function<void(gl_submission&)> change;  // change of a valid submission: 100 floats, or with a residual
  bool residual = false;
};

const std::vector<Bad>& bad_ones() {
  using S = gl_submission;
  static const std::vector<Bad> all = {
      {"kind 9", TrainerFault::kBadKind, [](S& it) { it.kind = GL_ALL_TO_ALL + 1; }},
      {"reduce by no strategy", TrainerFault::kBadStrategy, [](S& it) { it.kind = GL_REDUCE; }},
      {"all-to-all by no strategy", TrainerFault::kBadStrategy, [](S& it) { it.kind = GL_ALL_TO_ALL; }},
      {"gather by the ring", TrainerFault::kBadStrategy,
       [](S& it) { it.kind = GL_GATHER, it.strategy = find_strategy("ring").code(); }},
      {"kind 31", TrainerFault::kBadKind, [](S& it) { it.kind = GL_CANCEL - 1; }},
      {"kind 35", TrainerFault::kBadKind, [](S& it) { it.kind = GL_ENCODE + 1; }},
      {"kind 255", TrainerFault::kBadKind, [](S& it) { it.kind = 255; }},
      {"type 7", TrainerFault::kBadKind, [](S& it) { it.type = 7; }},
      {"type 255 of a barrier", TrainerFault::kBadKind, [](S& it) { it.kind = GL_BARRIER, it.type = 255; }},
      {"codec 200", TrainerFault::kBadCodec, [](S& it) { it.flags = GL_FLAG_CODEC, it.codec = 200; }},
      {"fixed:31", TrainerFault::kBadCodec,
       [](S& it) {
         it.flags = GL_FLAG_CODEC, it.codec = static_cast<uint8_t>(CodecId::kFixed), it.codec_arguments = 31;
       }},
      {"arguments beside B", TrainerFault::kBadCodec,
       [](S& it) {
         it.flags = GL_FLAG_CODEC, it.codec = static_cast<uint8_t>(CodecId::kFixed), it.codec_arguments = 0x10a;
       }},
      {"arguments of 2^64-1", TrainerFault::kBadCodec,
       [](S& it) {
         it.flags = GL_FLAG_CODEC, it.codec = static_cast<uint8_t>(CodecId::kFixed), it.codec_arguments = ~uint64_t{0};
       }},
      {"segment 1", TrainerFault::kBadSegment, [](S& it) { it.segment = 1; }},
      {"segment 64", TrainerFault::kBadSegment, [](S& it) { it.segment = GL_MAX_SEGMENTS; }},
      {"segment 255", TrainerFault::kBadSegment, [](S& it) { it.segment = 255; }},
      {"one byte beyond", TrainerFault::kOutOfBounds, [](S& it) { it.offset = kMaxBytes - 400 + 1; }},
      {"offset at the end", TrainerFault::kOutOfBounds, [](S& it) { it.offset = kMaxBytes; }},
      {"offset 2^64-1", TrainerFault::kOutOfBounds, [](S& it) { it.offset = ~uint64_t{0}; }},
      {"offset 2^64-400", TrainerFault::kOutOfBounds, [](S& it) { it.offset = ~uint64_t{0} - 399; }},
      {"too large", TrainerFault::kTooLarge, [](S& it) { it.count = kMaxBytes / 4 + 1; }},
      {"count 2^62", TrainerFault::kTooLarge, [](S& it) { it.count = uint64_t{1} << 62; }},
      {"count 2^64-1", TrainerFault::kTooLarge, [](S& it) { it.count = ~uint64_t{0}; }},
      {"blocks too large", TrainerFault::kTooLarge,
       [](S& it) { it.kind = GL_ALL_GATHER, it.count = kMaxBytes / 8 + 1; }},
      {"root 2", TrainerFault::kBadOperation, [](S& it) { it.kind = GL_BROADCAST, it.root = 2; }},
      {"root 2^32", TrainerFault::kBadOperation, [](S& it) { it.kind = GL_BROADCAST, it.root = uint64_t{1} << 32; }},
      {"root 2^64-1", TrainerFault::kBadOperation, [](S& it) { it.kind = GL_BROADCAST, it.root = ~uint64_t{0}; }},
      {"blocks that overlap", TrainerFault::kBadOperation, [](S& it) { it.kind = GL_ALL_GATHER, it.pitch = 99; }},
      {"last block beyond", TrainerFault::kOutOfBounds,
       [](S& it) { it.kind = GL_REDUCE_SCATTER, it.pitch = kMaxBytes / 4 - 99; }},
      {"pitch 2^64-1", TrainerFault::kOutOfBounds, [](S& it) { it.kind = GL_ALL_GATHER, it.pitch = ~uint64_t{0}; }},
      {"pitch 2^62", TrainerFault::kOutOfBounds,
       [](S& it) { it.kind = GL_REDUCE_SCATTER, it.pitch = uint64_t{1} << 62; }},
      {"average of integers", TrainerFault::kBadOperation,
       [](S& it) { it.type = GRADLANE_INT32, it.flags = GL_FLAG_AVERAGE; }},
      {"average of a broadcast", TrainerFault::kBadOperation,
       [](S& it) { it.kind = GL_BROADCAST, it.flags = GL_FLAG_AVERAGE; }},
      {"minimum of a broadcast", TrainerFault::kBadOperation,
       [](S& it) { it.kind = GL_BROADCAST, it.flags = GL_FLAG_MIN; }},
      {"minimum and maximum", TrainerFault::kBadOperation, [](S& it) { it.flags = GL_FLAG_MIN | GL_FLAG_MAX; }},
      {"average and maximum", TrainerFault::kBadOperation, [](S& it) { it.flags = GL_FLAG_AVERAGE | GL_FLAG_MAX; }},
      {"residual of a minimum", TrainerFault::kBadOperation, [](S& it) { it.flags |= GL_FLAG_MIN; }, true},
      {"strategy that is not allowed", TrainerFault::kBadStrategy,
       [](S& it) { it.strategy = find_strategy("rings:1").code(); }},
      {"strategy of a barrier that is not allowed", TrainerFault::kBadStrategy,
       [](S& it) { it.kind = GL_BARRIER, it.strategy = find_strategy("rings:1").code(); }},
      {"strategy that cannot do it", TrainerFault::kBadStrategy,
       [](S& it) { it.kind = GL_BROADCAST, it.strategy = find_strategy("aggregator:0").code(); }},
      {"no strategy's code", TrainerFault::kBadStrategy, [](S& it) { it.strategy = 0xffffffff; }},
      {"codec for the way back of a ring", TrainerFault::kBadOperation,
       [](S& it) { it.flags = GL_FLAG_BACK, it.back_codec = static_cast<uint8_t>(CodecId::kRaw); }},
      {"codec 200 for the way back", TrainerFault::kBadCodec,
       [](S& it) { it.flags = GL_FLAG_BACK, it.back_codec = 200, it.strategy = find_strategy("aggregator:0").code(); }},
      {"residual of doubles", TrainerFault::kBadOperation, [](S& it) { it.type = GRADLANE_FLOAT64; }, true},
      {"residual of an all-gather", TrainerFault::kBadOperation, [](S& it) { it.kind = GL_ALL_GATHER; }, true},
      {"residual of an exact sum", TrainerFault::kBadOperation, [](S& it) { it.flags |= GL_FLAG_EXACT; }, true},
      {"residual for raw", TrainerFault::kBadOperation,
       [](S& it) { it.flags |= GL_FLAG_CODEC, it.codec = static_cast<uint8_t>(CodecId::kRaw); }, true},
      {"residual in no segment", TrainerFault::kBadSegment, [](S& it) { it.residual_segment = 63; }, true},
      {"residual beyond", TrainerFault::kOutOfBounds, [](S& it) { it.residual_offset = kMaxBytes - 396; }, true},
      {"residual at 2^64-4", TrainerFault::kOutOfBounds, [](S& it) { it.residual_offset = ~uint64_t{3}; }, true},
      {"residual not aligned", TrainerFault::kOutOfBounds, [](S& it) { it.residual_offset = 402; }, true},
  };
  return all;
}

// Bad contributions that are encoded: the last 100 floats of 4196, or such floats that are to be encoded.
std::vector<Bad> bad_encoded_ones() {
  using S = gl_submission;
  const std::vector<Bad> contributions = {
      {"in no segment", TrainerFault::kBadSegment, [](S& it) { it.residual_segment = 63; }},
      {"beyond the segment", TrainerFault::kOutOfBounds, [](S& it) { it.encoded_bytes = kMaxBytes - 399; }},
      {"2^64-1 bytes", TrainerFault::kOutOfBounds, [](S& it) { it.encoded_bytes = ~uint64_t{0}; }},
      {"beyond the tensor", TrainerFault::kBadOperation, [](S& it) { it.encoded_first = 4097; }},
      {"from 2^64-1 on", TrainerFault::kBadOperation, [](S& it) { it.encoded_first = ~uint64_t{0}; }},
      {"of no floats", TrainerFault::kBadOperation, [](S& it) { it.encoded_count = 0; }},
      {"of 99 floats", TrainerFault::kBadOperation, [](S& it) { it.encoded_count = 99; }},
      {"of 2^64-1 floats", TrainerFault::kOutOfBounds, [](S& it) { it.encoded_count = ~uint64_t{0}; }},
      {"in the data", TrainerFault::kBadOperation, [](S& it) { it.residual_offset = 399; }},
      {"around the data", TrainerFault::kBadOperation, [](S& it) { it.offset = 800; }},
      {"with a residual", TrainerFault::kBadOperation, [](S& it) { it.flags |= GL_FLAG_RESIDUAL; }},
      {"of a minimum", TrainerFault::kBadOperation, [](S& it) { it.flags |= GL_FLAG_MIN; }},
      {"of doubles", TrainerFault::kBadOperation, [](S& it) { it.type = GRADLANE_FLOAT64; }},
      {"by a codec that rounds again", TrainerFault::kBadOperation,
       [](S& it) { it.codec = static_cast<uint8_t>(CodecId::kBf16), it.codec_arguments = 0; }},
      {"by no codec", TrainerFault::kBadCodec, [](S& it) { it.codec = 200; }},
  };
  const std::vector<Bad> encodings = {
      {"encoding into no segment", TrainerFault::kBadSegment, [](S& it) { it.residual_segment = 63; }},
      {"encoding that is not of whole blocks", TrainerFault::kBadOperation, [](S& it) { it.encoded_count = 5000; }},
      {"encoding from within a block", TrainerFault::kBadOperation,
       [](S& it) { it.encoded_count = 4197, it.encoded_first = 4097; }},
      {"encoding into too few bytes", TrainerFault::kOutOfBounds,
       [](S& it) { it.encoded_bytes = max_encoded_bytes(find_codec("fixed:10"), 4196) - 1; }},
      {"encoding of integers", TrainerFault::kBadOperation, [](S& it) { it.type = GRADLANE_INT32; }},
      {"encoding of an average of integers", TrainerFault::kBadOperation,
       [](S& it) { it.type = GRADLANE_INT32, it.flags |= GL_FLAG_AVERAGE; }},
  };
  const auto valid = [](S& it) {
    const Codec codec = find_codec("fixed:10");
    it.flags = GL_FLAG_CODEC;
    it.codec = static_cast<uint8_t>(codec.id());
    it.codec_arguments = std::bit_cast<uint64_t>(codec.arguments());
    it.residual_offset = 400;
    it.encoded_bytes = 40000;
    it.encoded_first = 4096;
    it.encoded_count = 4196;
  };
  std::vector<Bad> all;
  for (const Bad& bad : contributions) {
    all.push_back({bad.what, bad.fault, [=](S& it) { valid(it), it.flags |= GL_FLAG_ENCODED, bad.change(it); }});
  }
  for (const Bad& bad : encodings) {
    all.push_back({bad.what, bad.fault, [=](S& it) { valid(it), it.kind = GL_ENCODE, bad.change(it); }});
  }
  return all;
}

// Bad buffers for results as runs.
std::vector<Bad> bad_runs() {
  using S = gl_submission;
  const std::vector<Bad> changes = {
      {"runs in no segment", TrainerFault::kBadSegment, [](S& it) { it.runs_segment = 63; }},
      {"runs beyond the segment", TrainerFault::kOutOfBounds,
       [](S& it) { it.runs_offset = kMaxBytes - gl_runs_space(100) + 8; }},
      {"runs at 2^64-8", TrainerFault::kOutOfBounds, [](S& it) { it.runs_offset = ~uint64_t{7}; }},
      {"runs not aligned", TrainerFault::kBadOperation, [](S& it) { it.runs_offset = 404; }},
      {"runs with a residual", TrainerFault::kBadOperation, [](S& it) { it.flags |= GL_FLAG_RESIDUAL; }},
      {"runs of a minimum", TrainerFault::kBadOperation, [](S& it) { it.flags |= GL_FLAG_MIN; }},
      {"runs of doubles", TrainerFault::kBadOperation, [](S& it) { it.type = GRADLANE_FLOAT64; }},
      {"runs of a broadcast", TrainerFault::kBadOperation, [](S& it) { it.kind = GL_BROADCAST; }},
      {"runs of an encoding", TrainerFault::kBadOperation, [](S& it) { it.kind = GL_ENCODE; }},
      {"runs by bf16", TrainerFault::kBadOperation,
       [](S& it) { it.codec = static_cast<uint8_t>(CodecId::kBf16), it.codec_arguments = 0; }},
      {"runs of an aggregator", TrainerFault::kBadOperation,
       [](S& it) { it.strategy = find_strategy("aggregator:0").code(); }},
  };
  std::vector<Bad> all;
  for (const Bad& bad : changes) {
    all.push_back({bad.what, bad.fault, [=](S& it) {
                     const Codec codec = find_codec("fixed:10");
                     it.flags = GL_FLAG_CODEC | GL_FLAG_RUNS;
                     it.codec = static_cast<uint8_t>(codec.id());
                     it.codec_arguments = std::bit_cast<uint64_t>(codec.arguments());
                     it.runs_offset = 400;
                     bad.change(it);
                   }});
  }
  return all;
}

// The state arrays of codecs with several states lie beyond the segment or overlap, or their counts wrap.
TEST(Hostile, StatesOutOfBounds) {
  for (const CodecRow& row : codec_table()) {
    if (!row.feedback || row.states < 2) continue;
    const Codec codec = find_codec(row.example);
    const std::pair<uint64_t, TrainerFault> pitches[] = {{99, TrainerFault::kBadOperation},
                                                         {1, TrainerFault::kBadOperation},
                                                         {kMaxBytes / 4, TrainerFault::kOutOfBounds},
                                                         {uint64_t{1} << 62, TrainerFault::kOutOfBounds},
                                                         {~uint64_t{0}, TrainerFault::kOutOfBounds}};
    for (const auto& [pitch, fault] : pitches) {
      TrainerConfig it = config();
      it.strategies = find_strategies("direct");
      Trainers trainers(it);
      gl_submission submission = fp32(100);
      submission.flags = GL_FLAG_RESIDUAL | GL_FLAG_CODEC;
      submission.residual_offset = 400;
      submission.codec = static_cast<uint8_t>(codec.id());
      submission.codec_arguments = std::bit_cast<uint64_t>(codec.arguments());
      submission.state_pitch = pitch;
      trainers[0].put(1, submission);
      trainers.world.run_for(kMillisecond);
      EXPECT_EQ(trainers[0].fault(1).fault.load(), fault) << row.word << " " << pitch;
    }
  }
}

// Bad submissions of operations that need links between all ranks.
const std::vector<Bad>& bad_direct_ones() {
  using S = gl_submission;
  static const std::vector<Bad> all = {
      {"root 2 of a reduce", TrainerFault::kBadOperation, [](S& it) { it.kind = GL_REDUCE, it.root = 2; }},
      {"root 2^32-1 of a gather", TrainerFault::kBadOperation,
       [](S& it) { it.kind = GL_GATHER, it.block_root = ~uint32_t{0}; }},
      {"root 2 of a scatter", TrainerFault::kBadOperation, [](S& it) { it.kind = GL_SCATTER, it.block_root = 2; }},
      {"average of a gather", TrainerFault::kBadOperation,
       [](S& it) { it.kind = GL_GATHER, it.flags = GL_FLAG_AVERAGE; }},
      {"residual of a scatter", TrainerFault::kBadOperation, [](S& it) { it.kind = GL_SCATTER; }, true},
      {"residual of an all-to-all", TrainerFault::kBadOperation, [](S& it) { it.kind = GL_ALL_TO_ALL; }, true},
      {"blocks too large", TrainerFault::kTooLarge, [](S& it) { it.kind = GL_GATHER, it.count = kMaxBytes / 8 + 1; }},
      {"last block beyond", TrainerFault::kOutOfBounds,
       [](S& it) { it.kind = GL_SCATTER, it.pitch = kMaxBytes / 4 - 99; }},
      {"output is the data", TrainerFault::kBadOperation, [](S& it) { it.kind = GL_ALL_TO_ALL; }},
      {"output in the data", TrainerFault::kBadOperation,
       [](S& it) { it.kind = GL_ALL_TO_ALL, it.residual_offset = 799; }},
      {"data in the output", TrainerFault::kBadOperation, [](S& it) { it.kind = GL_ALL_TO_ALL, it.offset = 799; }},
      {"output in no segment", TrainerFault::kBadSegment,
       [](S& it) { it.kind = GL_ALL_TO_ALL, it.residual_segment = 63; }},
      {"output beyond", TrainerFault::kOutOfBounds,
       [](S& it) { it.kind = GL_ALL_TO_ALL, it.residual_offset = kMaxBytes - 799; }},
      {"output at 2^64-1", TrainerFault::kOutOfBounds,
       [](S& it) { it.kind = GL_ALL_TO_ALL, it.residual_offset = ~uint64_t{0}; }},
  };
  return all;
}

void expect_one_fault_each(const TrainerConfig& config, const std::vector<Bad>& bad_ones) {
  Trainers trainers(config);
  for (const Bad& bad : bad_ones) {
    gl_submission submission = fp32(100);
    if (bad.residual) {
      submission.flags = GL_FLAG_RESIDUAL;
      submission.residual_offset = 400;
    }
    bad.change(submission);
    const uint32_t before = trainers[0].lane(1).submit_head;
    trainers[0].put(1, submission);
    for (int i = 0; i < 10; ++i) trainers[0].put(1, fp32(~size_t{0}));  // each of these would be another fault
    trainers.world.run_for(kMillisecond);
    EXPECT_EQ(trainers[0].fault(1).fault.load(), bad.fault) << bad.what;
    EXPECT_EQ(trainers[0].fault(0).fault.load(), TrainerFault::kNone);
    EXPECT_EQ(trainers[0].lane(1).submit_head, 1 + before) << "nothing is taken after that";
    EXPECT_EQ(trainers[0].lane(1).complete_tail, before);
    EXPECT_TRUE(trainers.world.ops(0, 1).fall_asleep()) << "what will not be taken must not keep the worker awake";
    trainers.world.ops(0, 1).wake_up();
    replace(trainers, 0);
    trainers.run({.count = 100});
  }
}

TEST(Hostile, EachBadSubmissionIsOneFault) { expect_one_fault_each(config(), bad_ones()); }

TEST(Hostile, EachBadBufferForRunsIsOneFault) { expect_one_fault_each(config(), bad_runs()); }
TEST(Hostile, EachBadEncodedContributionIsOneFault) { expect_one_fault_each(config(), bad_encoded_ones()); }

TEST(Hostile, EachBadSubmissionOfDirectIsOneFault) {
  TrainerConfig direct = config();
  direct.strategies = find_strategies("direct");
  expect_one_fault_each(direct, bad_direct_ones());
}

// With local_reduce, the trainers of one node are one rank.
TEST(Hostile, NothingOfDirectWithLocalReduce) {
  TrainerConfig local = config();
  local.trainers = 2;
  local.strategies = find_strategies("direct");
  using S = gl_submission;
  expect_one_fault_each(
      local, {
                 {"reduce", TrainerFault::kBadOperation, [](S& it) { it.kind = GL_REDUCE; }},
                 {"encoding", TrainerFault::kBadOperation, [](S& it) { it.kind = GL_ENCODE, it.encoded_count = 100; }},
                 {"gather", TrainerFault::kBadOperation, [](S& it) { it.kind = GL_GATHER; }},
                 {"scatter", TrainerFault::kBadOperation, [](S& it) { it.kind = GL_SCATTER; }},
                 {"all-to-all", TrainerFault::kBadOperation, [](S& it) { it.kind = GL_ALL_TO_ALL; }},
                 {"blocks that lie apart", TrainerFault::kBadOperation,
                  [](S& it) { it.kind = GL_ALL_GATHER, it.pitch = 101; }},
             });
}

TEST(Hostile, ReportsSayWhatItWas) {
  Trainers trainers(config());
  gl_submission submission = fp32(100);
  submission.offset = kMaxBytes - 396;
  trainers[0].put(0, submission);
  trainers.world.run_for(kMillisecond);
  EXPECT_EQ(trainers[0].fault(0).a, kMaxBytes - 396);
  EXPECT_EQ(trainers[0].fault(0).b, 400U);
  EXPECT_EQ(trainers[0].fault(0).c, kMaxBytes);
}

// These operations reach the last byte. Guard pages follow it.
TEST(Hostile, WhatIsJustAllowedWorks) {
  Trainers trainers(config());
  trainers.run({.count = kMaxBytes / 4});
  trainers.run({.type = ElementType::kBytes, .count = kMaxBytes});
  trainers.run({.kind = OpKind::kAllGather, .count = kMaxBytes / 8});
  trainers.run({.count = 100, .offset = kMaxBytes - 400});
  trainers.run({.type = ElementType::kBytes, .count = 1, .offset = kMaxBytes - 1});
  std::vector<uint64_t> cookies;
  for (unsigned rank = 0; rank < 2; ++rank) {
    trainers[rank].add_segment(GL_MAX_SEGMENTS - 1, kSegmentBytes);
    gl_submission submission = fp32(kMaxBytes / 4);
    submission.flags = GL_FLAG_RESIDUAL;
    submission.residual_segment = GL_MAX_SEGMENTS - 1;
    submission.residual_offset = kSegmentBytes - kMaxBytes;
    cookies.push_back(trainers[rank].submit(submission));
  }
  for (const Outcome& end : trainers.outcomes_of(cookies)) EXPECT_EQ(end.failed, 0U) << end.text;
}

TEST(Hostile, RingCountsThatJump) {
  Trainers trainers(config());
  const std::function<void(gl_lane&)> jumps[] = {
      [](gl_lane& it) { it.submit_tail += GL_SLOTS + 1; },
      [](gl_lane& it) { it.submit_tail -= 1; },
      [](gl_lane& it) { it.submit_tail += 1U << 31; },
      [](gl_lane& it) { it.complete_head += 1, it.submit_tail += 1; },
      [](gl_lane& it) { it.complete_head -= GL_SLOTS + 1, it.submit_tail += 1; },
  };
  for (const auto& jump : jumps) {
    trainers.run({.count = 10});
    for (Trainer* const it : {&trainers[0], &trainers[1]}) it->read();
    jump(trainers[0].lane(0));
    trainers.world.run_for(kMillisecond);
    EXPECT_EQ(trainers[0].fault(0).fault.load(), TrainerFault::kRingCounts);
    replace(trainers, 0);
  }
  trainers.run({.count = 10});
}

// Operations in flight fail when the trainer is disconnected. Other ranks soon learn whose fault it is.
TEST(Hostile, OthersHearOfIt) {
  Trainers trainers(config());
  trainers.run({.count = 1000});
  const uint64_t theirs = trainers.submit(1, {.count = 1000});
  trainers[0].put(0, fp32(1000));
  gl_submission bad = fp32(1000);
  bad.kind = 99;
  trainers[0].put(0, bad);
  trainers.world.run_for(kMillisecond);
  EXPECT_NE(trainers[0].fault(0).fault.load(), TrainerFault::kNone);
  trainers[0].detach();
  ASSERT_TRUE(trainers.world.run_until([&] { return trainers[1].over(theirs).has_value(); }, 10 * kMillisecond));
  EXPECT_NE(trainers[1].over(theirs)->failed, 0U);
  EXPECT_NE(trainers[1].over(theirs)->text.find("rank 0"), std::string::npos);
}

// ---- Floods

TEST(Hostile, AMillionCancelsKeepNobodyWaiting) {
  Trainers trainers({.nodes = 2, .trainers = 2});
  unsigned put = 0;
  for (int round = 0; put < 1'000'000; ++round) {
    std::vector<uint64_t> cookies;
    for (const unsigned rank : {0U, 1U, 2U, 3U}) cookies.push_back(trainers.submit(rank, {.count = 5}));
    for (int step = 0; step < 1000; ++step) {
      gl_lane& lane = trainers[0].lane(0);
      while (lane.submit_tail - lane.submit_head < GL_SLOTS) {
        trainers[0].cancel(uint64_t{1} << 60 | put);
        ++put;
      }
      trainers.world.step();
    }
    for (const Outcome& end : trainers.outcomes_of(cookies, 0)) EXPECT_EQ(end.failed, 0U) << end.text;
  }
  EXPECT_EQ(trainers[0].fault(0).fault.load(), TrainerFault::kNone);
}

// The rings set the limit: lanes never take more than the rings hold.
TEST(Hostile, SubmissionsWithoutEndAreDoneOrWait) {
  Trainers trainers({.nodes = 1, .operations = 256});
  gl_lane& lane = trainers[0].lane(0);
  while (trainers[0].completions() < rounds(1'000'000U)) {
    while (lane.submit_tail - lane.submit_head < GL_SLOTS) trainers[0].put(0, submission_of(OpKind::kBarrier, {}, 0));
    const size_t before = trainers[0].completions();
    for (int i = 0; i < 8; ++i) trainers.world.step();
    EXPECT_LE(trainers.world.channel(0, 0).in_flight.load(), GL_SLOTS);
    trainers[0].read();
    ASSERT_GT(trainers[0].completions(), before);
  }
}

// ---- Random bytes

// The test writes random bytes anywhere, also into submitted entries. Some entries are valid. Guard pages surround all
// memory.
TEST(Hostile, RandomBytesInSharedMemory) {
  Trainers trainers({.nodes = 2, .lanes = 2, .trainers = 2, .operation_timeout = 20 * kMillisecond});
  const size_t bytes = gl_control_bytes(2);
  for (unsigned seed = 0; seed < 150; ++seed) {
    std::mt19937 random(seed);
    const unsigned who = seed % 4;
    auto* const memory = reinterpret_cast<uint8_t*>(&trainers[who].control());
    for (int i = 0; i < 40; ++i) {
      gl_submission any = fp32(random() % 300);
      any.kind = static_cast<uint8_t>(random() % 6);
      any.type = static_cast<uint8_t>(random() % 7);
      if (any.kind == GL_BROADCAST) any.root = random() % 4;
      for (unsigned lane = 0; lane < 2; ++lane) trainers[who].put(lane, any);
      for (unsigned rank = 0; rank < 4; ++rank) {
        if (rank != who && i % 8 == 0) trainers.submit(rank, {.count = 100});
      }
      if (random() % 2 == 0) trainers.world.step();
      const size_t at = sizeof(gl_control) + random() % (bytes - sizeof(gl_control));
      const size_t length = std::min<size_t>(random() % 100, bytes - at);
      if (random() % 10 == 0) std::generate_n(memory + at, length, [&] { return static_cast<uint8_t>(random()); });
      trainers.world.step();
    }
    for (unsigned rank = 0; rank < 4; ++rank) {
      if (rank != who) {
        EXPECT_EQ(trainers[rank].fault(0).fault.load(), TrainerFault::kNone);
      }
    }
    // The other ranks have lost count of this trainer's operations, so all trainers start again.
    for (unsigned rank = 0; rank < 4; ++rank) trainers[rank].detach();
    for (unsigned rank = 0; rank < 4; ++rank) trainers[rank].forget_faults();
    trainers.world.run_for(kMillisecond);
    for (unsigned rank = 0; rank < 4; ++rank) trainers.come(rank);
    trainers.run({.count = 300});
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
  }
}

}  // namespace
}  // namespace gradlane::test::trainer_hostile_test
