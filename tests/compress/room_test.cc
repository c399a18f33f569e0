// room_test.cc - long runs of dense groups that are cut to fit outputs of many lengths, and counts that no block can
// have
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "tests/compress/isa_test.h"

namespace gradlane::test::room_test {
namespace {

constexpr uint8_t kCanary = 0xa5;
constexpr size_t kCanaries = 160;  // more than a vector store can write past the end

class Room : public IsaTest {};

// An output of `room` bytes with canaries after it.
class GuardedOutput {
 public:
  explicit GuardedOutput(size_t room) : bytes_(room + kCanaries, kCanary), room_(room) {}
  std::span<uint8_t> span() { return {bytes_.data(), room_}; }
  [[nodiscard]] std::vector<uint8_t> first(size_t count) const {
    return {bytes_.begin(), bytes_.begin() + static_cast<ptrdiff_t>(count)};
  }
  [[nodiscard]] bool intact() const {
    return std::all_of(bytes_.begin() + static_cast<ptrdiff_t>(room_), bytes_.end(),
                       [](uint8_t byte) { return byte == kCanary; });
  }

 private:
  std::vector<uint8_t> bytes_;
  size_t room_;
};

std::vector<size_t> rooms() {
  std::vector<size_t> list = {0, 7, 8, 9, 16384, 16385, 20000, 40000};
  for (size_t room = 60; room < 320; ++room) list.push_back(room);
  for (size_t room = 320; room < 16384; room += 97) list.push_back(room);
  return list;
}

// A run whose groups all take two bytes per float, the most that a narrow group can take.
struct Dense {
  const char* codec;
  float value;
};

constexpr Dense kDense[] = {{"fixed:10", 20.0F}, {"inceptionn:10", 0.5F}, {"inceptionn:10,truncate", 0.5F}};
constexpr size_t kFloats = 20000;

TEST_P(Room, DenseRunsAreCutAsTheScalarOnesAre) {
  for (const Dense& dense : kDense) {
    const Codec scalar = find_codec(dense.codec, Isa::kScalar);
    const Codec tested = codec(dense.codec);
    const std::vector<float> in(kFloats, dense.value);
    for (const size_t room : rooms()) {
      GuardedOutput expected(room), actual(room);
      const EncodeResult want = scalar.encode(in, expected.span());
      const EncodeResult got = tested.encode(in, actual.span());
      ASSERT_EQ(got.floats, want.floats) << dense.codec << ", room " << room;
      ASSERT_EQ(got.bytes, want.bytes) << dense.codec << ", room " << room;
      ASSERT_EQ(actual.first(got.bytes), expected.first(want.bytes)) << dense.codec << ", room " << room;
      ASSERT_TRUE(actual.intact()) << dense.codec << ", room " << room;
      if (want.floats < kFloats) {
        // The next group, of 8 + 64 bytes, would not have fitted.
        ASSERT_GT(want.bytes + 72, std::min(room, kMaxPacket)) << dense.codec << ", room " << room;
      }
    }
  }
}

TEST_P(Room, DenseHopsAreCutAsTheScalarOnesAre) {
  for (const Dense& dense : kDense) {
    const Codec scalar = find_codec(dense.codec, Isa::kScalar);
    const Codec tested = codec(dense.codec);
    const std::vector<float> in(2048, dense.value);
    const std::vector<float> local(2048, dense.value / 4);
    std::vector<uint8_t> block(scalar.max_bytes(in.size()));
    block.resize(scalar.encode(in, block).bytes);
    for (const size_t room : rooms()) {
      GuardedOutput expected(room), actual(room);
      const HopResult want = scalar.hop(block, local, expected.span());
      const HopResult got = tested.hop(block, local, actual.span());
      ASSERT_EQ(got.status, want.status) << dense.codec << ", room " << room;
      ASSERT_EQ(got.floats, want.floats) << dense.codec << ", room " << room;
      ASSERT_EQ(actual.first(got.bytes), expected.first(want.bytes)) << dense.codec << ", room " << room;
      ASSERT_TRUE(actual.intact()) << dense.codec << ", room " << room;
    }
  }
}

// A hop refuses a bad block even if its output is longer than the writer's buffer.
TEST_P(Room, BadBlocksAreRefusedWhateverTheRoom) {
  for (const Dense& dense : kDense) {
    const Codec tested = codec(dense.codec);
    const std::vector<float> in(kFloats, dense.value);
    std::vector<uint8_t> block(tested.max_bytes(kFloats));
    block.resize(tested.encode(in, block).bytes);
    GuardedOutput out(tested.max_bytes(kFloats));
    for (const size_t length : {block.size() / 4, block.size() / 2, block.size() - 1}) {
      const HopResult got = tested.hop({block.data(), length}, in, out.span());
      EXPECT_NE(got.status, Status::kOk) << dense.codec << ", " << length << " bytes";
      EXPECT_EQ(got.floats, 0U);
      EXPECT_EQ(got.bytes, 0U);
      EXPECT_TRUE(out.intact());
    }
    ASSERT_EQ(tested.hop(block, in, out.span()).status, Status::kOk);
  }
}

// ---- Bit planes: the longest prefix that fits, wherever dense groups stand

constexpr size_t kGroups = 150;

// Returns the number of steps of float i of group g. Groups are zero, narrow, wide or escaped. `order` puts the dense
// ones first, last, or anywhere.
float steps_of(unsigned order, size_t g, size_t i) {
  const size_t place = order == 0 ? g : order == 1 ? kGroups - 1 - g : g * 67 % kGroups;
  const float sign = (i * 7 + g) % 3 == 0 ? -1.0F : 1.0F;
  if (place > 90) return 0;
  if (place > 20) return sign * static_cast<float>(i % (place / 20 + 2));
  if (place > 10) return sign * static_cast<float>(i * 25);
  return sign * static_cast<float>(place > 5 && i != 9 ? i : 40000 + i);
}

std::vector<float> ordered(unsigned order) {
  std::vector<float> floats(kGroups * kGroupFloats - 5);
  for (size_t i = 0; i < floats.size(); ++i) {
    floats[i] = 0x1p-9F * (steps_of(order, i / kGroupFloats, i % kGroupFloats) + 0.25F);
  }
  return floats;
}

TEST_P(Room, CutsOfPlanesAreTheLongestThatFit) {
  const Codec tested = codec("fixed:10");
  const auto prefix = [](const std::vector<float>& of, size_t groups) {
    return std::vector<float>(of.begin(), of.begin() + static_cast<ptrdiff_t>(std::min(of.size(), 32 * groups)));
  };
  for (unsigned order = 0; order < 3; ++order) {
    const std::vector<float> in = ordered(order), local = ordered((order + 1) % 3);
    std::vector<uint8_t> block(tested.max_bytes(in.size()));
    block.resize(tested.encode(in, block).bytes);
    std::vector<std::vector<uint8_t>> encoded(kGroups + 1), added(kGroups + 1);
    for (size_t k = 1; k <= kGroups; ++k) {
      const std::vector<float> front = prefix(in, k);
      std::vector<uint8_t> own(tested.max_bytes(front.size())), sum(own.size());
      own.resize(tested.encode(front, own).bytes);
      sum.resize(tested.hop(own, prefix(local, k), sum).bytes);
      encoded[k] = own;
      added[k] = sum;
    }
    for (size_t room = 0; room < block.size() + 200; room += room < 200 ? 1 : 7) {
      const auto longest = [room](const std::vector<std::vector<uint8_t>>& blocks) {
        size_t k = 0;
        while (k < kGroups && blocks[k + 1].size() <= room) ++k;
        return k;
      };
      for (const bool feedback : {false, true}) {
        SCOPED_TRACE(testing::Message() << "order " << order << ", room " << room << ", feedback " << feedback);
        std::vector<float> owed(in.size(), 0.0F), owed_by_hop(in.size(), 0.0F);
        GuardedOutput out(room), sum(room);
        const EncodeResult one = tested.encode_feedback(in, feedback ? owed.data() : nullptr, out.span());
        const size_t k = longest(encoded);
        ASSERT_EQ(one.floats, std::min(in.size(), k * kGroupFloats));
        ASSERT_EQ(out.first(one.bytes), encoded[k]);
        const HopResult two = tested.hop_feedback(block, local, feedback ? owed_by_hop.data() : nullptr, sum.span());
        const size_t m = longest(added);
        ASSERT_EQ(two.floats, std::min(in.size(), m * kGroupFloats));
        ASSERT_EQ(sum.first(two.bytes), added[m]);
        ASSERT_TRUE(out.intact() && sum.intact());
        const auto rest = [](const std::vector<float>& all, size_t from) {
          return std::count(all.begin() + static_cast<ptrdiff_t>(from), all.end(), 0.0F);
        };
        ASSERT_EQ(rest(owed, one.floats), static_cast<ptrdiff_t>(in.size() - one.floats));
        ASSERT_EQ(rest(owed_by_hop, two.floats), static_cast<ptrdiff_t>(in.size() - two.floats));
      }
    }
  }
}

// A count from a hostile header must not overflow when it becomes a length.
TEST_P(Room, AbsurdCountsAreRefused) {
  constexpr size_t kMost = std::numeric_limits<size_t>::max();
  const std::vector<uint8_t> bytes(64, 0);
  for (const std::string name : {"raw", "bf16", "fp16", "inceptionn:10", "fixed:10"}) {
    for (const size_t length : {size_t{0}, size_t{2}, size_t{8}, bytes.size()}) {
      for (const size_t floats : {kMost, kMost - 1, kMost - 30, kMost / 2 + 1, kMost / 2 + 2, kMost / 4 + 1}) {
        EXPECT_EQ(codec(name).validate({bytes.data(), length}, floats), Status::kShort)
            << name << ", " << length << " bytes, " << floats << " floats";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, Room, testing::ValuesIn(kIsas), isa_test_name);

}  // namespace
}  // namespace gradlane::test::room_test
