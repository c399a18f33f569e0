// print_blocks.cc - prints blocks of every codec, encoded, summed, damaged and cut, and the floats that they decode to.
// Tests of decoders that are not in C++ need it (tests/scripts/wireshark).
//
// usage: print_blocks
//
//     codec ID NAME BYTES      the arguments' eight bytes, as a descriptor has them
//     offers FLOAT...          the offers of ranks 0, 1, ... if the codec needs them
//     block COUNT BYTES FLOATS
//
// All values are hexadecimal, and bytes are in their order. "-" means no bytes. A block that is not valid for COUNT
// floats has no FLOATS.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <set>
#include <sstream>

#include "base/error.h"
#include "compress/votes_layout.h"
#include "tests/compress/test_floats.h"

namespace gradlane::test {
namespace {

constexpr size_t kRanks = 3;
constexpr size_t kLooked = 1000;  // number of floats that each rank scans before an operation
// No block of these sizes is longer than a packet.
constexpr size_t kSizes[] = {1, 31, 33, 256, 300, 700, 1100};
constexpr size_t kFewSizes[] = {33, 300};

// Codecs that are printed in addition to some_codecs().
constexpr const char* kMore =
    "fixed:1,stochastic fixed:10,stochastic fixed:rel=1 fixed:rel=10 fixed:rel=23 terngrad terngrad:1.5 tbq:1 tbq:7 "
    "tbq:30 signsgd signsgd,ternary signsgd,ef topk:20% topk:20%+fixed:30 mstopk:0.5%+fixed:14 graddrop:40%+fixed:1 "
    "dgc:5%,m=0.5,clip=2.5+fixed:12 onebit:512 onebit:1024 qsgd:3/256 qsgd:5/1024 int8:512 fp8:1024";

template <class T>
void print_bytes(const char* before, std::span<const T> items) {
  std::printf(items.empty() ? "%s-" : "%s", before);
  for (const std::byte byte : std::as_bytes(items)) std::printf("%02x", std::to_integer<unsigned>(byte));
}

// ---- What ranks contribute

std::vector<float> scaled(std::vector<float> floats, int exponent) {
  for (float& f : floats) f = std::ldexp(f, exponent);
  return floats;
}

// Returns the codec of rank 0 after three ranks have finished their scans of floats of about 2^exponent. Prints their
// offers.
Codec settled(Rng& rng, const Codec& codec, int exponent) {
  const FloatSource source(codec);
  if (codec.row().agreement == Agreement::kNone) return ready_for(codec, source.make(rng, Kind::kGradients, kLooked));
  std::vector<Codec> ranks(kRanks, codec);
  std::vector<std::unique_ptr<TensorScan>> scans;
  std::vector<float> offers;
  for (Codec& rank : ranks) {
    const std::vector<float> floats = scaled(source.make(rng, Kind::kGradients, kLooked), exponent);
    TensorScan& scan = *scans.emplace_back(std::make_unique<TensorScan>());
    while (scan.pass < rank.passes()) {
      rank.scan(scan, {floats.data(), nullptr, nullptr, floats.size(), 0});
      rank.end_pass(scan);
    }
    offers.push_back(rank.offer(scan));
  }
  ranks[0].finish_scan(*scans[0], agreed_on(codec.row().agreement, offers));
  std::printf("offers");
  for (const float& offer : offers) print_bytes(" ", std::span(&offer, 1));
  std::printf("\n");
  return ranks[0];
}

// ---- Blocks

// Returns a sum of several ranks' contributions.
std::vector<uint8_t> sum_block(Rng& rng, const Codec& codec, const FloatSource& source, size_t floats, int exponent) {
  const auto some = [&] { return scaled(source.make(rng, kKinds[rng.below(kKinds.size())], floats), exponent); };
  std::vector<uint8_t> block = encode_all(codec, some());
  for (size_t hops = 1 + rng.below(12); hops != 0; --hops) {
    std::vector<uint8_t> next(codec.max_bytes(floats));
    const HopResult hop = codec.hop(block, some(), next);
    if (hop.status != Status::kOk || hop.floats != floats) std::abort();
    next.resize(hop.bytes);
    block = next;
  }
  return block;
}

// Returns records with random ranges and random planes.
std::vector<uint8_t> foreign_votes(Rng& rng, size_t floats) {
  std::vector<uint8_t> block;
  for (size_t left = floats; left != 0; left -= std::min(left, kVoteFloats)) {
    const VoteHead head{static_cast<unsigned>(rng.below(rng.one_in(2) ? 5 : kMostVotes + 1)), rng.one_in(2),
                        rng.one_in(3)};
    const size_t at = block.size();
    block.resize(at + head.bytes(std::min(left, kVoteFloats)));
    for (size_t i = at; i < block.size(); ++i) block[i] = static_cast<uint8_t>(rng.bits());
    head.store(block.data() + at);
  }
  return block;
}

void print_block(const Codec& codec, const std::vector<uint8_t>& block, size_t floats) {
  std::vector<float> values(floats);
  const Status status = codec.decode(block, values);
  if (status != codec.validate(block, floats)) std::abort();
  std::printf("block %zu", floats);
  print_bytes(" ", std::span<const uint8_t>(block));
  if (status == Status::kOk) print_bytes(" ", std::span<const float>(values));
  std::printf("\n");
}

void print_blocks(Rng& rng, const Codec& codec, std::span<const size_t> sizes, int exponent) {
  const FloatSource source(codec);
  for (const size_t floats : sizes) {
    for (const Kind kind : {Kind::kGradients, Kind::kSparse, Kind::kMixed}) {
      print_block(codec, encode_all(codec, scaled(source.make(rng, kind, floats), exponent)), floats);
    }
    print_block(codec, sum_block(rng, codec, source, floats, exponent), floats);
    if (codec.row().layout == Form::kVotes) print_block(codec, foreign_votes(rng, floats), floats);
    for (const BlockKind kind : kBlockKinds) print_block(codec, make_block(rng, codec, source, kind, floats), floats);
  }
}

// Prints the blocks of a codec. If ranks agree on a step, this includes the smallest and largest steps, and data of
// zeros only.
void print_codec(Rng& rng, const Codec& named) {
  const bool agrees = named.row().agreement != Agreement::kNone;
  for (const int exponent : {0, -140, -120, 17, 118, -300}) {
    if (exponent != 0 && !agrees) break;
    std::printf("codec %u %s", static_cast<unsigned>(named.id()), named.name().c_str());
    print_bytes(" ", std::span(&named.arguments(), 1));
    std::printf("\n");
    const Codec codec = settled(rng, named, exponent);
    print_blocks(rng, codec, exponent == 0 ? std::span<const size_t>(kSizes) : kFewSizes, exponent);
  }
}

int print_all() {
  Rng rng(25);
  std::set<CodecId> printed;
  std::vector<std::string> names = some_codecs();
  std::istringstream more(kMore);
  names.insert(names.end(), std::istream_iterator<std::string>(more), {});
  for (const std::string& name : names) {
    const Codec codec = find_codec(name, Isa::kScalar);
    printed.insert(codec.id());
    print_codec(rng, codec);
  }
  if (printed.size() == codec_table().size()) return EXIT_SUCCESS;
  std::fprintf(stderr, "print_blocks: of some codecs there is no name in kMore\n");
  return EXIT_FAILURE;
}

}  // namespace
}  // namespace gradlane::test

int main() {
  try {
    return gradlane::test::print_all();
  } catch (const gradlane::SetupError& error) {
    std::fprintf(stderr, "print_blocks: %s\n", error.what());
    return 2;
  }
}
