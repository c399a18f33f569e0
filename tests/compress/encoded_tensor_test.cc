// encoded_tensor_test.cc - whole contributions that are encoded before an operation
#include "compress/encoded_tensor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/compress/test_floats.h"

namespace gradlane::test::encoded_tensor_test {
namespace {

constexpr size_t kSizes[] = {0, 1, 33, 4095, 4096, 4097, 3 * 4096 + 50};

std::vector<Codec> codecs() {
  std::vector<Codec> all;
  for (const std::string& name : all_codecs()) {
    const Codec codec = find_codec(name, Isa::kScalar);
    if (encodes_tensors(codec)) all.push_back(codec);
  }
  return all;
}

// Encodes in pieces of `blocks` blocks. Returns all bytes, as many as the table says.
std::vector<uint8_t> encode(const Codec& codec, std::span<const float> floats, size_t blocks = 1000) {
  std::vector<uint8_t> bytes(max_encoded_bytes(codec, floats.size()));
  for (size_t first = 0; first == 0 || first < floats.size(); first += blocks * kEncodedBlock) {
    const auto part = floats.subspan(first, std::min(blocks * kEncodedBlock, floats.size() - first));
    EXPECT_TRUE(encode_tensor(codec, part, first, floats.size(), bytes)) << codec.name();
  }
  uint64_t end = 0;
  std::memcpy(&end, bytes.data() + encoded_table_bytes(floats.size()) - sizeof(end), sizeof(end));
  EXPECT_LE(end, bytes.size());
  bytes.resize(end);
  return bytes;
}

TEST(EncodedTensor, CodecsThatRoundOnceMore) {
  std::set<std::string> words;
  for (const Codec& codec : codecs()) words.insert(codec.row().word);
  EXPECT_EQ(words, (std::set<std::string>{"exact", "fixed", "pack", "raw"}));
  for (const char* name : {"fixed:10,stochastic", "fixed:rel=10", "topk:1%+fixed:10", "signsgd", "bf16", "int8"}) {
    EXPECT_FALSE(encodes_tensors(find_codec(name, Isa::kScalar))) << name;
  }
}

// The client library allocates this much, whatever the codec.
TEST(EncodedTensor, TakesAtMostFiveBytesAFloat) {
  for (const Codec& codec : codecs()) {
    for (const size_t size : kSizes) {
      const size_t groups = (size + 31) / 32;
      EXPECT_LE(max_encoded_bytes(codec, size), encoded_table_bytes(size) + groups * 32 * kMostEncodedBytes);
    }
  }
}

// Blocks of what was decoded are those of the floats. So an operation on decoded contributions has the same packets.
TEST(EncodedTensor, DecodesToFloatsWithTheSameBlocks) {
  Rng rng(1);
  for (const Codec& codec : codecs()) {
    const FloatSource source(codec);
    for (const Kind kind : kKinds) {
      for (const size_t size : kSizes) {
        const std::vector<float> floats = source.make(rng, kind, size);
        const std::vector<uint8_t> bytes = encode(codec, floats);
        std::vector<float> decoded(size);
        ASSERT_TRUE(EncodedTensor(bytes, size).decode(codec, 0, decoded)) << codec.name();
        ASSERT_EQ(encode_all(codec, decoded), encode_all(codec, floats)) << codec.name();
        ASSERT_EQ(bits_of(decoded), bits_of(decode_all(codec, encode_all(codec, floats), size))) << codec.name();
      }
    }
  }
}

TEST(EncodedTensor, AnyPieceOfItAndInAnyPieces) {
  Rng rng(2);
  for (const Codec& codec : codecs()) {
    constexpr size_t kSize = 5 * kEncodedBlock + 77;
    const std::vector<float> floats = FloatSource(codec).make(rng, Kind::kMixed, kSize);
    const std::vector<uint8_t> bytes = encode(codec, floats);
    for (const size_t blocks : {size_t{1}, size_t{2}, size_t{3}, size_t{6}})
      ASSERT_EQ(encode(codec, floats, blocks), bytes) << codec.name();
    std::vector<float> all(kSize);
    ASSERT_TRUE(EncodedTensor(bytes, kSize).decode(codec, 0, all));
    for (int i = 0; i < 20; ++i) {
      const size_t first = rng.below(kSize + 1);
      std::vector<float> part(rng.below(kSize - first + 1));
      ASSERT_TRUE(EncodedTensor(bytes, kSize).decode(codec, first, part));
      ASSERT_TRUE(std::ranges::equal(bits_of(part), bits_of(std::span(all).subspan(first, part.size()))));
    }
  }
}

// With sanitizers, these find reads outside. The bytes are in a block of their exact size.
TEST(EncodedTensor, WhatAnotherProcessMayWrite) {
  Rng rng(3);
  constexpr size_t kSize = 2 * kEncodedBlock + 5;
  for (const char* name : {"raw", "pack", "fixed:1", "fixed:10", "fixed:30"}) {
    const Codec codec = find_codec(name);
    const std::vector<float> floats = FloatSource(codec).make(rng, Kind::kOutliers, kSize);
    const std::vector<uint8_t> good = encode(codec, floats);
    std::vector<float> out(kSize);
    for (size_t length = 0; length < good.size(); length += length < 64 ? 1 : 997) {
      const std::vector<uint8_t> cut(good.begin(), good.begin() + static_cast<std::ptrdiff_t>(length));
      ASSERT_FALSE(EncodedTensor(cut, kSize).decode(codec, 0, out)) << name << ", " << length;
    }
    for (const uint64_t wrong : {uint64_t{0}, uint64_t{31}, good.size() + 1, ~uint64_t{0}}) {
      for (size_t number = 0; number < 4; ++number) {
        std::vector<uint8_t> bad = good;
        std::memcpy(bad.data() + number * sizeof(wrong), &wrong, sizeof(wrong));
        ASSERT_FALSE(EncodedTensor(bad, kSize).decode(codec, 0, out)) << name << ", " << number << ": " << wrong;
      }
    }
    for (int i = 0; i < 2000; ++i) {
      std::vector<uint8_t> bad = good;
      for (size_t flips = rng.below(4) + 1; flips != 0; --flips) {
        bad[rng.one_in(2) ? rng.below(32) : rng.below(bad.size())] ^= static_cast<uint8_t>(1U << rng.below(8));
      }
      (void)EncodedTensor(bad, kSize).decode(codec, rng.below(2), std::span(out).first(rng.below(kSize)));
    }
    std::vector<uint8_t> room = good;
    room.resize(max_encoded_bytes(codec, kSize) - 1);
    EXPECT_FALSE(encode_tensor(codec, floats, 0, kSize, std::span(room).first(31)));
    // Blocks of `pack` may leave enough room for the others.
    if (codec.row().word != std::string("pack")) {
      EXPECT_FALSE(encode_tensor(codec, std::vector<float>(kSize, 1e30F), 0, kSize, room)) << name;
    }
    const uint64_t wrong = room.size() + 7;
    std::memcpy(room.data() + sizeof(wrong), &wrong, sizeof(wrong));
    EXPECT_FALSE(encode_tensor(codec, std::span(floats).subspan(kEncodedBlock), kEncodedBlock, kSize, room));
  }
}

// Another process changes blocks while they are decoded.
TEST(EncodedTensor, BytesThatChange) {
  constexpr size_t kSize = 3 * kEncodedBlock;
  for (const Isa isa : kIsas) {
    if (!isa_supported(isa)) continue;
    const Codec codec = find_codec("fixed:10", isa);
    Rng rng(4);
    const std::vector<float> floats = FloatSource(codec).make(rng, Kind::kOutliers, kSize);
    std::vector<uint8_t> bytes = encode(codec, floats);
    std::atomic<bool> stop{false};
    std::thread other([&] {
      Rng noise(5);
      while (!stop.load()) {
        const size_t place = 32 + noise.below(bytes.size() - 32);
        const std::atomic_ref<uint8_t> byte(bytes[place]);
        const uint8_t before = byte.load(std::memory_order_relaxed);
        byte.store(static_cast<uint8_t>(noise.bits()), std::memory_order_relaxed);
        byte.store(before, std::memory_order_relaxed);
      }
    });
    std::vector<float> out(kSize);
    for (int i = 0; i < 20000; ++i) (void)EncodedTensor(bytes, kSize).decode(codec, 0, out);
    stop = true;
    other.join();
  }
}

}  // namespace
}  // namespace gradlane::test::encoded_tensor_test
