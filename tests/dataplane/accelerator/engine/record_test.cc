// record_test.cc - payloads through records change only as the codec changes them. A record is never longer than its
// payload, and invalid records are refused
#include "dataplane/accelerator/engine/record.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <memory>

#include "tests/dataplane/accelerator/engine/frames.h"
#include "tests/thorough.h"

namespace gradlane::test::record_test {
namespace {

using accel::kRecordHeaderBytes;
using accel::RecordFault;

// A block of exact size for a span, so that the address sanitizer notices accesses beyond it.
struct Exact {
  explicit Exact(size_t n) : bytes(new uint8_t[n]), size(n) {}
  explicit Exact(const Bytes& from) : Exact(from.size()) {
    if (size != 0) std::memcpy(bytes.get(), from.data(), size);
  }
  [[nodiscard]] std::span<uint8_t> span() const { return {bytes.get(), size}; }
  std::unique_ptr<uint8_t[]> bytes;
  size_t size;
};

Bytes write(const Codec& codec, const Bytes& payload, unsigned lead) {
  const Exact in(payload), out(payload.size());
  const size_t bytes = accel::write_record(codec, in.span(), lead, out.span());
  return Bytes(out.bytes.get(), out.bytes.get() + bytes);
}

RecordFault read(const Codec& codec, const Bytes& record, Bytes& payload) {
  const Exact in(record), out(payload.size());
  const RecordFault fault = accel::read_record(codec, in.span(), out.span());
  if (fault == RecordFault::kNone) payload.assign(out.bytes.get(), out.bytes.get() + out.size);
  return fault;
}

// Returns the length that the format gives a record; 0 if there must be no record.
size_t wanted_bytes(const Codec& codec, const Bytes& payload, size_t lead) {
  if (payload.size() < lead + 4) return 0;
  std::vector<float> floats((payload.size() - lead) / 4);
  std::memcpy(floats.data(), payload.data() + lead, floats.size() * 4);
  Bytes block(codec.max_bytes(floats.size()));
  const size_t bytes = kRecordHeaderBytes + payload.size() - 4 * floats.size() + codec.encode(floats, block).bytes;
  return bytes + accel::kGroupBytes < payload.size() ? bytes : 0;
}

// A record that does not fit into its buffer is not written beyond it.
TEST(Record, FitsItsBuffer) {
  const Codec codec = find_codec("fixed:10");
  const Bytes original = payload(Data::kGradients, 1400, 1, 3);
  const size_t needed = write(codec, original, 3).size();
  ASSERT_NE(needed, 0U);
  for (size_t room = 0; room <= needed; ++room) {
    const Exact in(original), out(room);
    EXPECT_EQ(accel::write_record(codec, in.span(), 3, out.span()), room == needed ? needed : 0U) << room;
  }
}

TEST(Record, EverySizeAndKindOfData) {
  const size_t step = thorough() ? 1 : 7;
  for (const char* name : {"fixed:6", "fixed:10", "inceptionn:10"}) {
    const Codec codec = find_codec(name);
    size_t written[std::size(kAllData)] = {};
    for (const Data data : kAllData) {
      for (size_t bytes = 0; bytes <= 1472; bytes += step) {
        const auto lead = static_cast<unsigned>(bytes / 4 % 4);
        const Bytes original = payload(data, bytes, bytes, lead);
        const Bytes record = write(codec, original, lead);
        ASSERT_EQ(record.size(), wanted_bytes(codec, original, lead)) << name << " " << bytes;
        if (record.empty()) continue;
        ++written[static_cast<size_t>(data)];
        Bytes restored(bytes);
        ASSERT_EQ(read(codec, record, restored), RecordFault::kNone) << name << " " << bytes;
        ASSERT_EQ(restored, lossy(codec, original, lead)) << name << " " << bytes;
      }
    }
    EXPECT_GT(written[static_cast<size_t>(Data::kZeros)], 1440 / step) << name;
    EXPECT_GT(written[static_cast<size_t>(Data::kGradients)], 1400 / step) << name;
    EXPECT_GT(written[static_cast<size_t>(Data::kMixed)], 1200 / step) << name;
  }
}

TEST(Record, LeadAndTrailAreExact) {
  const Codec codec = find_codec("fixed:10");
  for (unsigned lead = 0; lead < 4; ++lead) {
    for (size_t trail = 0; trail < 4; ++trail) {
      const Bytes original = payload(Data::kGradients, lead + 400 + trail, 5, lead);
      const Bytes record = write(codec, original, lead);
      ASSERT_FALSE(record.empty());
      EXPECT_EQ(record[4], lead | trail << 2);
      EXPECT_EQ(record[0] | record[1] << 8, static_cast<int>(original.size()));
      EXPECT_TRUE(std::equal(original.begin(), original.begin() + lead, record.begin() + 8));
      EXPECT_TRUE(
          std::equal(original.end() - static_cast<ptrdiff_t>(trail), original.end(), record.begin() + 8 + lead));
      Bytes restored(original.size());
      ASSERT_EQ(read(codec, record, restored), RecordFault::kNone);
      EXPECT_TRUE(std::equal(original.begin(), original.begin() + lead, restored.begin()));
      EXPECT_TRUE(std::equal(original.end() - static_cast<ptrdiff_t>(trail), original.end(),
                             restored.end() - static_cast<ptrdiff_t>(trail)));
      EXPECT_EQ(restored, lossy(codec, original, lead));
    }
  }
}

TEST(Record, WhatCannotGetShorterIsLeft) {
  const Codec codec = find_codec("fixed:10");
  for (size_t bytes = 0; bytes < 16; ++bytes) {
    EXPECT_TRUE(write(codec, payload(Data::kZeros, bytes, 1), 0).empty()) << bytes;
  }
  EXPECT_FALSE(write(codec, payload(Data::kZeros, 16, 1), 0).empty());
  EXPECT_TRUE(write(codec, payload(Data::kLarge, 1472, 1), 0).empty());
  EXPECT_TRUE(write(find_codec("raw"), payload(Data::kZeros, 1472, 1), 0).empty());
  EXPECT_TRUE(write(codec, payload(Data::kZeros, 100, 1), 4).empty());
  EXPECT_TRUE(write(codec, payload(Data::kZeros, 65536, 1), 0).empty());
  EXPECT_FALSE(write(codec, payload(Data::kZeros, 65535, 1), 3).empty());
}

TEST(Record, Faults) {
  const Codec codec = find_codec("fixed:10");
  const Bytes good = write(codec, payload(Data::kMixed, 403, 9, 1), 1);
  ASSERT_FALSE(good.empty());
  struct Row {
    const char* what;
    RecordFault want;
    std::function<void(Bytes&)> change;
    size_t payload = 403;
  };
  const auto set = [](size_t at, uint8_t value) { return [=](Bytes& record) { record[at] = value; }; };
  const std::vector<Row> rows = {
      {"as it was", RecordFault::kNone, [](Bytes&) {}},
      {"empty", RecordFault::kShort, [](Bytes& r) { r.clear(); }},
      {"header cut", RecordFault::kShort, [](Bytes& r) { r.resize(7); }},
      {"one byte less", RecordFault::kShort, [](Bytes& r) { r.pop_back(); }},
      {"one byte more", RecordFault::kTooLong, [](Bytes& r) { r.push_back(0); }},
      {"block longer than the record", RecordFault::kShort, set(3, 0xff)},
      {"block of no bytes", RecordFault::kBadBlock, [](Bytes& r) { r[2] = r[3] = 0, r.resize(8 + 3); }},
      {"block shorter, and cut", RecordFault::kBadBlock, [](Bytes& r) { --r[2], r.pop_back(); }},
      {"block longer, and there", RecordFault::kBadBlock, [](Bytes& r) { ++r[2], r.push_back(0); }},
      {"another lead", RecordFault::kBadShape, set(4, 2 | 2 << 2)},
      {"another trail", RecordFault::kBadShape, set(4, 1 | 3 << 2)},
      {"shape bit 5", RecordFault::kBadShape, set(4, 0x29)},
      {"shape bit 7", RecordFault::kBadShape, set(4, 0x89)},
      {"zero that is none", RecordFault::kBadShape, set(5, 1)},
      {"header words", RecordFault::kBadMask, set(6, 1)},
      {"header words, highest", RecordFault::kBadMask, set(7, 0x80)},
      {"no float", RecordFault::kBadShape, [](Bytes& r) { r[0] = 3, r[1] = 0; }, 3},
      {"payload of 0 bytes", RecordFault::kBadShape, [](Bytes& r) { r[0] = r[1] = 0; }, 0},
      {"payload longer than asked for", RecordFault::kTooLong, [](Bytes&) {}, 402},
      {"payload shorter than asked for", RecordFault::kTooLong, [](Bytes&) {}, 404},
  };
  for (const Row& row : rows) {
    Bytes record = good, restored(row.payload);
    row.change(record);
    EXPECT_EQ(read(codec, record, restored), row.want) << row.what;
  }
}

// A record with a flipped bit or a cut is refused, or gives a payload of the requested length.
TEST(Record, EveryBitAndEveryCut) {
  for (const char* name : {"fixed:10", "inceptionn:10"}) {
    const Codec codec = find_codec(name);
    const Bytes good = write(codec, payload(Data::kSpecial, 300, 3, 2), 2);
    ASSERT_FALSE(good.empty());
    size_t refused = 0;
    for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
      Bytes record = good, restored(300);
      record[bit / 8] ^= static_cast<uint8_t>(1 << bit % 8);
      const bool header = bit / 8 < kRecordHeaderBytes && bit != 8 * 4 + 4;  // all but the bit of the UDP checksum
      const RecordFault fault = read(codec, record, restored);
      EXPECT_TRUE(!header || fault != RecordFault::kNone) << bit;
      if (fault != RecordFault::kNone) ++refused;
    }
    EXPECT_GT(refused, 8 * kRecordHeaderBytes - 1 + 64);  // flipped tags change the length of the block
    for (size_t bytes = 0; bytes < good.size(); ++bytes) {
      Bytes restored(300);
      EXPECT_NE(read(codec, Bytes(good.begin(), good.begin() + static_cast<ptrdiff_t>(bytes)), restored),
                RecordFault::kNone);
    }
  }
}

TEST(Record, OfAnotherCodec) {
  const Bytes record = write(find_codec("fixed:10"), payload(Data::kMixed, 400, 1), 0);
  Bytes restored(400);
  EXPECT_EQ(read(find_codec("bf16"), record, restored), RecordFault::kBadBlock);
}

}  // namespace
}  // namespace gradlane::test::record_test
