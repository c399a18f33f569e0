// join_test.cc - join() makes of two adjacent blocks the block that encoding all floats at once makes
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "tests/compress/test_floats.h"

namespace gradlane::test::join_test {
namespace {

constexpr uint8_t kCanary = 0xa5;
constexpr size_t kCanaries = 16;

// Joins the blocks of two runs, and compares the result with the block of both runs.
void expect_join(const Codec& codec, const std::vector<float>& first, const std::vector<float>& second) {
  const std::vector<uint8_t> a = encode_all(codec, first);
  const std::vector<uint8_t> b = encode_all(codec, second);
  std::vector<float> all = first;
  all.insert(all.end(), second.begin(), second.end());

  std::vector<uint8_t> want(kCanaries, kCanary);
  const std::vector<uint8_t> whole = encode_all(codec, all);
  want.insert(want.end(), whole.begin(), whole.end());
  want.insert(want.end(), kCanaries, kCanary);

  std::vector<uint8_t> got(kCanaries, kCanary);
  got.insert(got.end(), a.begin(), a.end());
  got.insert(got.end(), b.begin(), b.end());
  got.insert(got.end(), kCanaries, kCanary);
  const size_t bytes = codec.join(got.data() + kCanaries, {first.size(), a.size()}, {second.size(), b.size()});
  ASSERT_EQ(bytes, whole.size()) << codec.name();
  got.resize(kCanaries + bytes);
  got.insert(got.end(), kCanaries, kCanary);
  ASSERT_EQ(got, want) << codec.name() << ", " << first.size() << " and " << second.size() << " floats";
}

Codec scalar(const std::string& name) { return find_codec(name, Isa::kScalar); }

// Returns `floats`, rounded up to a multiple of the granule: only such a run may be followed by another one.
size_t first_floats(const Codec& codec, size_t floats) {
  return (floats + codec.granule() - 1) / codec.granule() * codec.granule();
}

constexpr size_t kFirst[] = {0, 32, 64, 320, 1024};
constexpr size_t kSecond[] = {0, 1, 31, 32, 33, 500, 1024};

TEST(Join, AllCodecs) {
  Rng rng(1);
  for (const std::string& name : all_codecs()) {
    const Codec codec = scalar(name);
    const FloatSource source(codec);
    for (const size_t first : kFirst) {
      if (first % codec.granule() != 0) continue;
      for (const size_t second : kSecond) {
        expect_join(codec, source.make(rng, Kind::kMixed, first_floats(codec, first)),
                    source.make(rng, Kind::kMixed, second));
      }
    }
  }
}

TEST(Join, EveryKindOfFloats) {
  Rng rng(2);
  for (const std::string& name : some_codecs()) {
    const Codec codec = scalar(name);
    const FloatSource source(codec);
    for (const Kind a : kKinds) {
      for (const Kind b : kKinds)
        expect_join(codec, source.make(rng, a, first_floats(codec, 96)), source.make(rng, b, 77));
    }
  }
}

// Each of the two blocks has no payload, or four bytes per float. The longest blocks are longer than a packet.
TEST(Join, NoPayloadAndAllRaw) {
  for (const std::string name : {"raw", "bf16", "inceptionn:10", "fixed:10"}) {
    const Codec codec = scalar(name);
    for (const size_t first : {size_t{32}, size_t{640}, size_t{4096}, size_t{96000}}) {
      for (const size_t second : {size_t{1}, size_t{32}, size_t{1000}, size_t{4096}, size_t{100001}}) {
        for (const float a : {0.0F, 1e30F}) {
          for (const float b : {0.0F, 1e30F}) {
            expect_join(codec, std::vector<float>(first, a), std::vector<float>(second, b));
          }
        }
      }
    }
  }
}

// Joins packets one by one, as a receiver does if they arrive in order.
TEST(Join, PacketsOneByOne) {
  Rng rng(3);
  for (const std::string& name : some_codecs()) {
    const Codec codec = scalar(name);
    const std::vector<float> floats = FloatSource(codec).make(rng, Kind::kOutliers, 5000);
    std::vector<uint8_t> joined(codec.max_bytes(floats.size()));
    size_t done = 0;
    size_t bytes = 0;
    while (done < floats.size()) {
      // Blocks of codecs with granule 1 could be cut anywhere. Here they have 352 floats, because all but the last must
      // be whole groups.
      const size_t take = codec.granule() == 1 ? std::min<size_t>(352, floats.size() - done) : floats.size() - done;
      const size_t room = std::min<size_t>(1408, joined.size() - bytes);
      const EncodeResult next = codec.encode({floats.data() + done, take}, {joined.data() + bytes, room});
      ASSERT_GT(next.floats, 0U);
      bytes = codec.join(joined.data(), {done, bytes}, {next.floats, next.bytes});
      done += next.floats;
      ASSERT_EQ(codec.validate({joined.data(), bytes}, done), Status::kOk);
    }
    joined.resize(bytes);
    ASSERT_EQ(joined, encode_all(codec, floats)) << name;
  }
}

}  // namespace
}  // namespace gradlane::test::join_test
