// nothing_test.cc - calls without floats, or with an output of no bytes
#include <string>
#include <vector>

#include "tests/compress/isa_test.h"
#include "tests/compress/test_floats.h"

namespace gradlane::test::nothing_test {
namespace {

class Nothing : public IsaTest {};

// Empty blocks come from spans whose address is null.
TEST_P(Nothing, EmptySpans) {
  const std::vector<float> some(40, 1.0F);
  for (const std::string& name : some_codecs()) {
    const Codec mine = codec(name);
    EXPECT_EQ(mine.max_bytes(0), 0U);
    EXPECT_EQ(mine.validate({}, 0), Status::kOk);
    EXPECT_EQ(mine.decode({}, {}), Status::kOk);
    EXPECT_EQ(mine.decode_add({}, {}), Status::kOk);
    EXPECT_EQ(mine.encode({}, {}).bytes, 0U);
    EXPECT_EQ(mine.hop({}, {}, {}).status, Status::kOk);
    EXPECT_EQ(mine.encode(some, {}).floats, 0U);
    const HopResult hop = mine.hop(encode_all(mine, some), some, {});
    EXPECT_EQ(hop.status, Status::kOk);
    EXPECT_EQ(hop.floats, 0U);
    EXPECT_EQ(mine.validate({}, 1), Status::kShort);
    EXPECT_EQ(mine.hop({}, some, {}).status, Status::kShort);
  }
}

void expect_nothing(const EncodeResult& got) { EXPECT_EQ(got.floats + got.bytes, 0U); }

void expect_nothing(Status status, const HopResult& got) {
  EXPECT_EQ(got.status, status);
  EXPECT_EQ(got.floats + got.bytes, 0U);
}

// Checks that a hop has refused its block. The status depends on the bytes where an escape is expected, so any error is
// right.
void expect_refused(const HopResult& got) {
  EXPECT_NE(got.status, Status::kOk);
  EXPECT_EQ(got.floats + got.bytes, 0U);
}

// Calls without floats, and hops that start at the end, write nothing and do not change the residual. They still report
// a bad block.
TEST_P(Nothing, NothingToTake) {
  Rng rng(8);
  for (const std::string& name : some_codecs()) {
    const Codec mine = codec(name);
    const FloatSource source(mine);
    for (size_t floats = 0; floats <= 128; floats += mine.granule()) {
      SCOPED_TRACE(name + " of " + std::to_string(floats));
      const std::vector<float> local = source.make(rng, Kind::kMixed, floats);
      const std::vector<uint8_t> block = make_block(rng, mine, source, BlockKind::kForeign, floats);
      const std::vector<float> owed(floats, 0.25F);
      std::vector<float> residual = owed;
      std::vector<uint8_t> longer = block;
      longer.push_back(0);
      for (const size_t room : {size_t{0}, mine.max_bytes(floats), mine.max_bytes(floats) + 70}) {
        std::vector<uint8_t> out(room);
        expect_nothing(Status::kOk, mine.hop({}, {}, out));
        expect_nothing(Status::kOk, mine.hop(block, local, out, floats));
        expect_refused(mine.hop(longer, local, out, floats));
        if (floats != 0) expect_refused(mine.hop(std::span(block).first(block.size() - 1), local, out, floats));
        expect_nothing(mine.encode({}, out));
        if (!mine.has_feedback()) continue;
        expect_nothing(mine.encode_feedback({}, residual.data(), out));
        expect_nothing(Status::kOk, mine.hop_feedback({}, {}, residual.data(), out));
        expect_nothing(Status::kOk, mine.hop_feedback(block, local, residual.data(), out, floats));
        EXPECT_EQ(residual, owed);
      }
      if (HasFailure()) return;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, Nothing, testing::ValuesIn(kIsas), isa_test_name);

}  // namespace
}  // namespace gradlane::test::nothing_test
