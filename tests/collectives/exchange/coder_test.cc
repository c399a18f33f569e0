// coder_test.cc - tests of a Coder with every type: encoding, decoding, pieces that fit the space, sums, averages
#include "collectives/exchange/coder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "tests/collectives/exchange/coder_fixture.h"

namespace gradlane::test::coder_test {
namespace {

// Returns the number of elements at whose multiples encode() and hop() stop.
size_t cut(const CoderCase& way) {
  return way.type == ElementType::kFloat32 ? std::max(way.coder.granule(), way.codec.granule()) : way.coder.granule();
}

// Makes blocks of at most `room` bytes of `count` elements by `next(first, out)`, and joins them in order.
template <class Next>
Bytes in_pieces(const CoderCase& way, size_t count, size_t room, Next next) {
  Odd joined(way.coder.max_bytes(count));
  size_t done = 0;
  size_t bytes = 0;
  while (done < count) {
    Odd out(room);
    const EncodeResult piece = next(done, out.span());
    EXPECT_LE(piece.bytes, room);
    EXPECT_LE(piece.floats, std::min(count - done, kMaxRunElements));
    if (piece.floats < count - done) {
      EXPECT_EQ(piece.floats % cut(way), 0U);
      // Another granule would not have fit.
      if (piece.floats + cut(way) <= kMaxRunElements) {
        EXPECT_GT(piece.bytes + way.coder.max_bytes(cut(way)), std::min(room, kMaxPacket)) << way.name();
      }
    }
    if (piece.floats == 0 || testing::Test::HasFailure()) break;
    std::memcpy(joined.data() + bytes, out.data(), piece.bytes);
    bytes = way.coder.join(joined.data(), {done, bytes}, {piece.floats, piece.bytes});
    done += piece.floats;
  }
  return joined.first(bytes);
}

TEST_P(CoderTest, Sizes) {
  for (const CoderCase& way : ways()) {
    EXPECT_EQ(way.coder.element_bytes(), way.width());
    EXPECT_EQ(way.coder.granule() * way.width(), kGranuleBytes);
    const bool coded = way.coded;
    EXPECT_EQ(way.coder.codec_id(), coded ? way.codec.id() : CodecId::kRaw);
    EXPECT_EQ(way.coder.codec_param(), coded ? way.codec.param() : 0);
    EXPECT_EQ(way.coder.max_bytes(1000), coded ? way.codec.max_bytes(1000) : 1000 * way.width());
  }
}

TEST_P(CoderTest, ThereAndBack) {
  Rng rng(1);
  for (const CoderCase& way : ways()) {
    for (const size_t count : kCounts) {
      const Bytes elements = way.make(rng, count);
      const Bytes want = way.block(elements);
      Odd in(elements), out(way.coder.max_bytes(count)), back(elements.size());
      const EncodeResult result = way.coder.encode(in.data(), count, {}, out.span());
      ASSERT_EQ(result.floats, count) << way.name();
      ASSERT_EQ(out.first(result.bytes), want) << way.name() << ", " << count;
      Odd block(want);
      ASSERT_EQ(way.coder.validate(block.span(), count), Status::kOk) << way.name() << ", " << count;
      ASSERT_EQ(way.coder.decode(block.span(), back.data(), count), Status::kOk);
      ASSERT_EQ(way.block(back.first(elements.size())), want) << way.name() << ", " << count;
      if (way.type != ElementType::kFloat32) {
        ASSERT_EQ(back.first(elements.size()), elements);
      }
    }
    // Zero elements need no memory.
    EXPECT_EQ(way.coder.encode(nullptr, 0, {}, {}).bytes, 0U);
    EXPECT_EQ(way.coder.decode({}, nullptr, 0), Status::kOk);
    EXPECT_EQ(way.coder.hop({}, nullptr, 0, {}, {}).status, Status::kOk);
    EXPECT_EQ(way.coder.join(nullptr, {0, 0}, {0, 0}), 0U);
  }
}

TEST_P(CoderTest, WrongLengths) {
  Rng rng(2);
  for (const CoderCase& way : ways()) {
    for (const size_t count : kCounts) {
      const Bytes elements = way.make(rng, count);
      for (const bool longer : {false, true}) {
        if (count == 0 && !longer) continue;
        Bytes bytes = way.block(elements);
        bytes.resize(bytes.size() + (longer ? size_t{1} : ~size_t{0}));
        Odd block(bytes), local(elements), out(way.coder.max_bytes(count));
        // The fault that is found first in bit planes depends on the bytes.
        const Status want = way.coder.validate(block.span(), count);
        EXPECT_TRUE(way.coder.codec_id() == CodecId::kFixed ? want != Status::kOk
                                                            : want == (longer ? Status::kLong : Status::kShort))
            << way.name() << ", " << count;
        EXPECT_EQ(way.coder.decode(block.span(), local.data(), count), want) << way.name() << ", " << count;
        const HopResult hop = way.coder.hop(block.span(), local.data(), count, {}, out.span());
        EXPECT_EQ(hop.status, want) << way.name() << ", " << count;
        EXPECT_EQ(hop.floats + hop.bytes, 0U);
      }
    }
    EXPECT_EQ(way.coder.validate({}, ~size_t{0}), Status::kShort) << way.name();
  }
}

TEST_P(CoderTest, SumsAreThoseOfEachElement) {
  Rng rng(3);
  for (const CoderCase& way : ways()) {
    for (const size_t count : kCounts) {
      const Bytes elements = way.make(rng, count);
      const Bytes addends = way.make(rng, count);
      Odd block(way.block(elements)), local(addends), out(way.coder.max_bytes(count));
      const HopResult hop = way.coder.hop(block.span(), local.data(), count, {}, out.span());
      ASSERT_EQ(hop.status, Status::kOk) << way.name() << ", " << count;
      ASSERT_EQ(hop.floats, count) << way.name();
      ASSERT_EQ(out.first(hop.bytes), way.sum_block(elements, addends)) << way.name() << ", " << count;
    }
  }
}

// add() works in place. For fp32 it does what the codec's decode_add() does, for other types what a hop does.
TEST_P(CoderTest, AddsInPlace) {
  Rng rng(7);
  for (const CoderCase& way : ways()) {
    for (const size_t count : kCounts) {
      const Bytes elements = way.make(rng, count);
      const Bytes addends = way.make(rng, count);
      Bytes want;
      if (way.type == ElementType::kFloat32) {
        std::vector<float> sums = way.floats(addends);
        ASSERT_EQ(way.codec.decode_add(way.block(elements), sums), Status::kOk);
        want.resize(addends.size());
        if (count != 0) std::memcpy(want.data(), sums.data(), want.size());
      } else {
        want = way.sums(elements, addends);
      }
      Odd block(way.block(elements)), sums(addends);
      ASSERT_EQ(way.coder.add(block.span(), sums.data(), count), Status::kOk) << way.name() << ", " << count;
      ASSERT_EQ(sums.first(want.size()), want) << way.name() << ", " << count;
    }
    Bytes sums(100 * way.width());
    const Bytes block(way.coder.max_bytes(100) + 1);
    EXPECT_NE(way.coder.add(block, sums.data(), 100), Status::kOk) << way.name();
    EXPECT_EQ(way.coder.add({}, nullptr, 0), Status::kOk);
  }
}

// Pieces of any size, joined again, equal the block of all elements. One count is longer than a run can be.
TEST_P(CoderTest, PiecesMakeTheWhole) {
  Rng rng(4);
  for (const CoderCase& way : ways()) {
    for (const size_t count : {size_t{1}, size_t{100}, size_t{1000}, size_t{4099}, size_t{140003}}) {
      const Bytes elements = way.make(rng, count);
      const Bytes addends = way.make(rng, count);
      const Bytes block = way.block(elements);
      const Bytes sums = way.sum_block(elements, addends);
      Odd odd_elements(elements), odd_block(block), local(addends);
      for (const size_t room : {size_t{136}, size_t{200}, size_t{1000}, size_t{1408}, size_t{9100}, size_t{2000000}}) {
        if (count > 10000 && room < 9000) continue;
        if (room < way.coder.max_bytes(cut(way))) continue;  // perhaps not even one granule would fit
        ASSERT_EQ(in_pieces(way, count, room,
                            [&](size_t first, std::span<uint8_t> out) {
                              return way.coder.encode(odd_elements.data() + first * way.width(), count - first, {},
                                                      out);
                            }),
                  block)
            << way.name() << ", " << count << ", room " << room;
        ASSERT_EQ(in_pieces(way, count, count > kMaxRunElements ? std::min<size_t>(room, 9100) : room,
                            [&](size_t first, std::span<uint8_t> out) {
                              const HopResult hop =
                                  way.coder.hop(odd_block.span(), local.data(), count, {}, out, first);
                              EXPECT_EQ(hop.status, Status::kOk);
                              return EncodeResult{hop.floats, hop.bytes};
                            }),
                  sums)
            << way.name() << ", " << count << ", room " << room;
      }
    }
  }
}

TEST_P(CoderTest, NothingGoesWhereNoGranuleFits) {
  for (const CoderCase& way : ways()) {
    const Bytes elements(1000 * way.width(), 0x7f);  // a large number in every type
    const Bytes block = way.block(elements);
    for (const size_t room : {size_t{0}, size_t{1}, size_t{7}, size_t{63}}) {
      Odd out(room);
      EXPECT_EQ(way.coder.encode(elements.data(), 1000, {}, out.span()).floats, 0U) << way.name();
      const HopResult hop = way.coder.hop(block, elements.data(), 1000, {}, out.span(), way.coder.granule());
      EXPECT_EQ(hop.status, Status::kOk);
      EXPECT_EQ(hop.floats + hop.bytes, 0U) << way.name();
    }
  }
}

// Zeros have the shortest encoding. Even then, no run has more elements than its header can state.
TEST_P(CoderTest, RunsHaveALongestLength) {
  for (const CoderCase& way : ways()) {
    const size_t count = 200000;
    const Bytes zeros(count * way.width());
    for (const size_t room : {kMaxPacket, way.coder.max_bytes(count)}) {
      Bytes out(room);
      const EncodeResult encoded = way.coder.encode(zeros.data(), count, {}, out);
      EXPECT_LE(encoded.floats, kMaxRunElements) << way.name();
      EXPECT_EQ(encoded.floats % way.coder.granule(), 0U) << way.name();
      if (room != kMaxPacket) {
        EXPECT_GT(encoded.floats + way.coder.granule(), kMaxRunElements) << way.name();
      }
    }
  }
}

// Error feedback in pieces gives the same residual as in one call.
TEST_P(CoderTest, FeedbackInPieces) {
  Rng rng(5);
  for (const std::string name : {"fixed:10", "inceptionn:10"}) {
    const CoderCase way(ElementType::kFloat32, codec(name));
    const size_t count = 1000;
    const FloatSource source(way.codec);
    const std::vector<float> floats = source.make(rng, Kind::kGradients, count);
    const std::vector<float> owed = source.make(rng, Kind::kResidual, count);
    const Bytes block = encode_all(way.codec, source.make(rng, Kind::kGradients, count));
    Bytes want(way.coder.max_bytes(count));

    std::vector<float> want_owed = owed;
    want.resize(way.codec.encode_feedback(floats, want_owed.data(), want).bytes);
    std::vector<float> got_owed = owed;
    EXPECT_EQ(in_pieces(way, count, 300,
                        [&](size_t first, std::span<uint8_t> out) {
                          return way.coder.encode(floats.data() + first, count - first, {got_owed.data() + first}, out);
                        }),
              want);
    EXPECT_EQ(bits_of(got_owed), bits_of(want_owed));
    EXPECT_EQ(bits_of(got_owed) == bits_of(owed), !way.codec.has_feedback());

    want_owed = got_owed = owed;
    want.resize(way.coder.max_bytes(count));
    want.resize(way.codec.hop_feedback(block, floats, want_owed.data(), want).bytes);
    EXPECT_EQ(in_pieces(way, count, 300,
                        [&](size_t first, std::span<uint8_t> out) {
                          const HopResult hop =
                              way.coder.hop(block, floats.data(), count, {got_owed.data()}, out, first);
                          EXPECT_EQ(hop.status, Status::kOk);
                          return EncodeResult{hop.floats, hop.bytes};
                        }),
              want);
    EXPECT_EQ(bits_of(got_owed), bits_of(want_owed));
  }
}

// ---- All numbers of fp16 and bf16

Bytes all_halves() {
  Bytes bytes(2 * 65536);
  for (size_t i = 0; i < 65536; ++i) set_word(bytes, 2, i, i);
  return bytes;
}

TEST_P(CoderTest, AllHalvesAreAdded) {
  const Bytes all = all_halves();
  for (const auto& [type, name] :
       {std::pair(ElementType::kFloat16, "raw"), std::pair(ElementType::kFloat16, "pack"),
        std::pair(ElementType::kBfloat16, "raw"), std::pair(ElementType::kBfloat16, "pack")}) {
    const CoderCase way(type, codec(name));
    const Bytes block = way.block(all);
    const Format& format = half_format(type);
    // Adding -0 changes no number. The other values make sums round, cancel, underflow and overflow. Multiplication by
    // an odd factor permutes the words, so it pairs each number with a different one.
    std::vector<Bytes> addends;
    for (const double value : {-0.0, 1.0, -1.0, 1.0 / 3, 1e-7, -60000.0, 3e38}) {
      Bytes bytes(all.size());
      for (size_t i = 0; i < 65536; ++i) set_word(bytes, 2, i, word_of(format, value));
      addends.push_back(bytes);
    }
    for (const size_t factor : {size_t{1}, size_t{0x8001}, size_t{40503}, size_t{3}, size_t{12345}}) {
      Bytes bytes(all.size());
      for (size_t i = 0; i < 65536; ++i) set_word(bytes, 2, i, i * factor % 65536);
      addends.push_back(bytes);
    }
    for (const Bytes& local : addends) {
      const Bytes added = in_pieces(way, 65536, 9100, [&](size_t first, std::span<uint8_t> out) {
        const HopResult hop = way.coder.hop(block, local.data(), 65536, {}, out, first);
        return EncodeResult{hop.floats, hop.bytes};
      });
      Bytes sums(all.size());
      ASSERT_EQ(way.coder.decode(added, sums.data(), 65536), Status::kOk);
      for (size_t i = 0; i < 65536; ++i) {
        ASSERT_EQ(word_at(sums, 2, i), reference_sum(type, i, word_at(local, 2, i)))
            << way.name() << std::hex << ", " << i << " + " << word_at(local, 2, i);
      }
    }
  }
}

TEST_P(CoderTest, AllHalvesAreDivided) {
  for (const ElementType type : {ElementType::kFloat16, ElementType::kBfloat16}) {
    const CoderCase way(type, codec("raw"));
    const Format& format = half_format(type);
    for (const unsigned world : {1U, 2U, 3U, 7U, 10U, 255U, 256U}) {
      Odd averages(all_halves());
      way.coder.divide(averages.data(), 65536, world);
      const Bytes got = averages.first(2 * 65536);
      for (size_t i = 0; i < 65536; ++i) {
        ASSERT_EQ(word_at(got, 2, i), word_of(format, value_of(format, i) / world))
            << way.name() << ", " << i << " / " << world;
      }
    }
  }
}

TEST_P(CoderTest, FloatsAreDivided) {
  Rng rng(6);
  for (const ElementType type : {ElementType::kFloat32, ElementType::kFloat64}) {
    const CoderCase way(type, codec("fixed:10"));
    for (const size_t count : kCounts) {
      for (const unsigned world : {1U, 3U, 256U}) {
        const Bytes sums = way.make(rng, count);
        Odd averages(sums);
        way.coder.divide(averages.data(), count, world);
        const Bytes got = averages.first(sums.size());
        for (size_t i = 0; i < count; ++i) {
          const uint64_t word = word_at(sums, way.width(), i);
          const uint64_t want =
              type == ElementType::kFloat64
                  ? word_of(double_of(word) / world)
                  : word_of({8, 23}, static_cast<double>(float_of(static_cast<uint32_t>(word))) / world);
          ASSERT_EQ(word_at(got, way.width(), i), want) << way.name() << std::hex << ", " << word << " / " << world;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Isa, CoderTest, testing::ValuesIn(kIsas), isa_test_name);

}  // namespace
}  // namespace gradlane::test::coder_test
