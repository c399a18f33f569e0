// operation_test.cc - tests of the names of operations, and of the texts that users read when an operation fails
#include "collectives/operation.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "client/tuner/agreement.h"

namespace gradlane::test::operation_test {
namespace {

uint64_t codec_value(const std::string& name) {
  const Codec codec = find_codec(name, Isa::kScalar);
  return static_cast<uint64_t>(codec.id()) << 8 | codec.param();
}

TEST(Operation, NamesAndSizes) {
  EXPECT_STREQ(element_name(ElementType::kBfloat16), "bfloat16");
  EXPECT_STREQ(op_name(OpKind::kReduceScatter), "reduce-scatter");
  const std::pair<ElementType, size_t> sizes[] = {
      {ElementType::kFloat32, 4}, {ElementType::kFloat64, 8}, {ElementType::kFloat16, 2}, {ElementType::kBfloat16, 2},
      {ElementType::kInt32, 4},   {ElementType::kInt64, 8},   {ElementType::kBytes, 1}};
  for (const auto& [type, bytes] : sizes) EXPECT_EQ(element_bytes(type), bytes) << element_name(type);
}

TEST(Operation, TagsOfAgreements) {
  for (const uint64_t number : {uint64_t{0}, uint64_t{1}, uint64_t{256}, (uint64_t{1} << GL_AGREEMENT_BITS) - 1}) {
    EXPECT_TRUE(gl_is_agreement_tag(gl_agreement_tag(number))) << number;
  }
  EXPECT_FALSE(gl_is_agreement_tag(gl_agreement_tag(uint64_t{1} << GL_AGREEMENT_BITS)));
  for (uint64_t tag = 0; tag < 100'000; ++tag) {
    EXPECT_FALSE(gl_is_agreement_tag(tag)) << tag;
    EXPECT_FALSE(gl_is_agreement_tag(tag << 32)) << tag;
  }
}

struct Case {
  Failure failure;
  std::string text;
};

TEST(Operation, FailuresInWords) {
  using enum FailureCode;
  const std::string kSameCalls = "; all ranks must call the same operations in the same order";
  const Case cases[] = {
      {{}, "no failure"},
      {{kSilent, 3}, "rank 3 has been silent for too long: it has died, hangs, or cannot be reached"},
      {{kRestarted, 3}, "rank 3 has restarted and lost the operations that were in flight"},
      {{kAborted, 2}, "cancelled on rank 2"},
      {{kNoRing, 7}, "the ring did not come up in time: nothing was heard from rank 7"},
      {{kNoRing, 7, Field::kArrivedTos, 0x30002, 0x04},
       "the ring did not come up in time: packets of rank 3 arrive at rank 2 with ToS 0x04, which is not in `tos`: a "
       "switch between them rewrites DSCP; run gradlane check on both"},
      {{kStuck, 1}, "the operation took too long: it was waiting for rank 1"},
      {{kStuck, 1, Field::kNone, 5'000'000'000, 1},
       "the operation took too long: it was waiting for rank 1 (limit: 5 s, timeouts.operation)"},
      {{kStuck, 1, Field::kNone, 1'500'000'000, 0},
       "the operation took too long: it was waiting for rank 1 (limit: 1500 ms)"},
      {{kClosed, 0}, "rank 0 has left, or was shut down"},
      {{kDuplicateRank, 2}, "rank 2 is used by two machines: does one of them use the configuration of another node?"},
      {{kDuplicateRank, 2, Field::kNone, kMacSource | 0x0f0000000002, kMacSource | 0x10ab00000002},
       "rank 2 is used by two machines, 02:00:00:00:00:0f and 02:00:00:00:ab:10: does one of them use the "
       "configuration of another node?"},
      {{kDuplicateRank, 2, Field::kNone, 0x12, 0x34ab},
       "rank 2 is used by two machines, process 0x12 and process 0x34ab: does one of them use the configuration of "
       "another node?"},
      {{static_cast<FailureCode>(99), 5}, "unknown failure 99, rank 5"},

      {{kRefused, 1}, "rank 1 is configured differently"},
      {{kRefused, 1, Field::kCodec, codec_value("fixed:10"), codec_value("raw")},
       "rank 1 is configured differently: codec: fixed:10 here, raw there"},
      {{kRefused, 1, Field::kCodec, codec_value("inceptionn:9,truncate"), 0x2a07},
       "rank 1 is configured differently: codec: inceptionn:9,truncate here, unknown (id 42, parameter 7) there"},
      {{kRefused, 1, Field::kCodec, ~uint64_t{0}, 0x100},
       "rank 1 is configured differently: codec: unknown (id 255, parameter 255, 0xfffffffffff) here, bf16 there"},
      {{kRefused, 1, Field::kCodec, uint64_t{0x14} << 52 | uint64_t{0x2710} << 32 | 0x10c802, 0},
       "rank 1 is configured differently: codec: unknown (id 200, parameter 2, 0x2710001014) here, raw there"},
      {{kRefused, 1, Field::kVersion, 1, 2}, "rank 1 is configured differently: protocol version: 1 here, 2 there"},
      {{kRefused, 1, Field::kWorld, 4, 8}, "rank 1 is configured differently: number of ranks: 4 here, 8 there"},
      {{kRefused, 1, Field::kRank, 1, 2}, "rank 1 is configured differently: rank: 1 here, 2 there"},
      {{kRefused, 1, Field::kMtu, 1472, 8972}, "rank 1 is configured differently: mtu: 1472 here, 8972 there"},
      {{kRefused, 1, Field::kRankTable, 0x12ab, 0},
       "rank 1 is configured differently: rank table: 0x00000000000012ab here, 0x0000000000000000 there"},

      {{kRefused, 1, Field::kNodes, 3, 4}, "rank 1 is configured differently: nodes: 3 here, 4 there"},
      {{kRefused, 1, Field::kTrainers, 1, 2}, "rank 1 is configured differently: trainers: 1 here, 2 there"},
      {{kRefused, 1, Field::kLocalReduce, 1, 0},
       "rank 1 is configured differently: local_reduce: true here, false there"},
      {{kRefused, 1, Field::kLanes, 1, 2}, "rank 1 is configured differently: workers.lanes: 1 here, 2 there"},
      {{kRefused, 1, Field::kUdpPort, 18400, 18500},
       "rank 1 is configured differently: udp_port: 18400 here, 18500 there"},
      {{kRefused, 1, Field::kTosRaw, 0x20, 0x24}, "rank 1 is configured differently: tos.raw: 0x20 here, 0x24 there"},
      {{kRefused, 1, Field::kAddresses, 0x12ab, 0xffeeddcc},
       "rank 1 is configured differently: addresses or order of `nodes` (digest): 0x000012ab here, "
       "0xffeeddcc there"},

      {{kRefused, 1, Field::kAutoScope, 0x10a02, 0},
       "rank 1 is configured differently: codec and strategy: auto:2^-10 and strategy auto here, no auto there"},
      {{kRefused, 1, Field::kAutoScope, 0x703, 0xff},
       "rank 1 is configured differently: codec and strategy: auto:rel=7 here, no auto there"},
      {{kRefused, 1, Field::kAutoScope, 1, 0x10000},
       "rank 1 is configured differently: codec and strategy: auto here, strategy auto there"},
      {{kMismatch, 1, Field::kCount, 100, 200},
       "rank 1 runs another operation: count: 100 on the rank that found this, 200 on rank 1" + kSameCalls},
      {{kMismatch, 1, Field::kRoot, 0, 1},
       "rank 1 runs another operation: root: 0 on the rank that found this, 1 on rank 1" + kSameCalls},
      {{kMismatch, 1, Field::kReduction, 0, 1},
       "rank 1 runs another operation: reduction: sum on the rank that found this, average on rank 1" + kSameCalls},
      {{kMismatch, 1, Field::kKind, 0, 99},
       "rank 1 runs another operation: kind: all-reduce on the rank that found this, unknown (99) on rank 1" +
           kSameCalls},
      {{kMismatch, 1, Field::kType, 3, 1000},
       "rank 1 runs another operation: type: bfloat16 on the rank that found this, unknown (1000) on rank 1" +
           kSameCalls},
      {{kMismatch, 1, Field::kChoice, 0, 1},
       "rank 1 runs another operation: who chooses codec and strategy: the caller on the rank that found this, "
       "gradlane (auto) on rank 1; all ranks must use auto alike and resume together"},
      {{kMismatch, 1, static_cast<Field>(77), 3, 4},
       "rank 1 runs another operation: ?: 3 on the rank that found this, 4 on rank 1" + kSameCalls},
  };
  for (const Case& c : cases) EXPECT_EQ(failure_text(c.failure), c.text);
}

}  // namespace
}  // namespace gradlane::test::operation_test
