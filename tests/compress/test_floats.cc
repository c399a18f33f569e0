// test_floats.cc - makes the floats and blocks of test_floats.h
#include "tests/compress/test_floats.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <memory>

namespace gradlane::test {
namespace {

constexpr uint32_t kSpecialBits[] = {
    0x00000000, 0x00000001, 0x007fffff, 0x00800000,              // 0, denormals, the smallest normal number
    0x7f7fffff, 0x7f800000,                                      // the largest number, Inf
    0x7fc00000, 0x7f800001, 0x7fa12345, 0x7fc12345, 0x7f802000,  // NaN, quiet and signalling
    0x7fffffff, 0x7f80ffff, 0x3f7fffff, 0x3f800000, 0x3f800001,  // more NaNs; 1 and its neighbours
    0x477fe000, 0x477fefff, 0x477ff000, 0x477ff001,              // fp16: the largest number, rounding past it
    0x38800000, 0x387fffff, 0x387ff000, 0x38800fff,              // fp16: 2^-14, where denormals begin
    0x33800000, 0x33000000, 0x33000001, 0x32ffffff,              // fp16: 2^-24, 2^-25
    0x3f801000, 0x3f803000, 0x3f801001, 0x3f802fff,              // fp16: ties
    0x3f808000, 0x3f818000, 0x3f808001, 0x3f817fff, 0x7f7f8000,  // bf16: ties, rounding to Inf
};

constexpr double kEdgeSteps[] = {
    0.25,       0.5,        0.75,         1,       1.5,          2,       2.5,
    63.5,       64,         126.5,        127,     127.5,        128,     128.5,
    255,        255.5,      256,          32766.5, 32767,        32767.5, 32768,
    32768.5,    65535,      65535.5,      65536,   0x1p22 - 0.5, 0x1p22,  0x1p22 + 0.5,
    0x1p22 + 1, 0x1p23 - 1, 0x1p23 - 0.5, 0x1p23,  0x1p24 - 1,   0x1p24,  0x1p25,
};

constexpr size_t kStepLimits[] = {2, 129, 300, 20000, 32767, 40000, 5000000};  // the last one is beyond 2^22

// Returns b, on which the ranges of floats depend; 10 for codecs without b.
int bits_param(const Codec& codec) { return codec.row().max_bits != 0 ? static_cast<int>(codec.bits()) : 10; }

void append_word(std::vector<uint8_t>& bytes, uint32_t word) {
  for (unsigned shift = 0; shift < 32; shift += 8) bytes.push_back(static_cast<uint8_t>(word >> shift));
}

// Returns planes that a decoder must accept: random widths and words, and sometimes an escape.
std::vector<uint8_t> foreign_planes(Rng& rng, size_t floats) {
  const size_t groups = (floats + kGroupFloats - 1) / kGroupFloats;
  std::vector<uint8_t> block((groups + 1) / 2);
  std::vector<std::vector<uint8_t>> escapes;
  const size_t widest = rng.one_in(2) ? 8 : 14;
  for (size_t g = 0; g < groups; ++g) {
    size_t words = rng.below(widest + 1);
    size_t tag = words;
    if (rng.one_in(12)) {
      tag = 15;
      words = rng.below(17);
      const size_t here = std::min(kGroupFloats, floats - g * kGroupFloats);
      uint32_t raw = 0;
      const size_t most = rng.one_in(4) ? kGroupFloats - words : 4;
      for (size_t i = rng.below(most + 1); i != 0; --i) raw |= 1U << rng.below(here);
      escapes.insert(escapes.begin(), {static_cast<uint8_t>(words)});
      append_word(escapes.front(), raw);
      words += static_cast<size_t>(std::popcount(raw));
    }
    block[g / 2] = static_cast<uint8_t>(block[g / 2] | tag << g % 2 * 4);
    for (; words != 0; --words) append_word(block, rng.one_in(4) ? 0 : rng.bits());
  }
  for (const std::vector<uint8_t>& escape : escapes) block.insert(block.end(), escape.begin(), escape.end());
  return block;
}

// Returns records with random places, as a list or as a bitmap, and random values.
std::vector<uint8_t> foreign_sparse(Rng& rng, const Codec& codec, size_t floats) {
  constexpr size_t kRecord = 256;
  std::vector<uint8_t> block;
  for (size_t left = floats; left != 0; left -= std::min(left, kRecord)) {
    const size_t here = std::min(left, kRecord);
    const size_t bitmap_bytes = (here + 7) / 8;
    const bool list = rng.one_in(2);
    const size_t sparse = rng.one_in(3) ? 1 : rng.one_in(2) ? 12 : 100;
    std::vector<uint8_t> places, bitmap(bitmap_bytes);
    for (size_t i = 0; i < here; ++i) {
      if (!rng.one_in(sparse) || (list && places.size() == bitmap_bytes)) continue;
      places.push_back(static_cast<uint8_t>(i));
      bitmap[i / 8] = static_cast<uint8_t>(bitmap[i / 8] | 1U << i % 8);
    }
    block.push_back(list ? static_cast<uint8_t>(places.size()) : uint8_t{255});
    block.insert(block.end(), list ? places.begin() : bitmap.begin(), list ? places.end() : bitmap.end());
    size_t width = 32;
    if (codec.arguments().value_bits != 0 && !places.empty()) {
      if (!rng.one_in(3)) width = 1 + rng.below(25);
      block.push_back(static_cast<uint8_t>(width));
    }
    for (size_t bytes = (places.size() * width + 7) / 8; bytes != 0; --bytes) {
      block.push_back(rng.one_in(4) ? uint8_t{0x80} : static_cast<uint8_t>(rng.bits()));
    }
  }
  return block;
}

// Returns packed groups with any heads that a decoder must accept, and random bytes.
std::vector<uint8_t> foreign_packed(Rng& rng, FloatForm elements, size_t floats) {
  const size_t width = elements == FloatForm::kFp32 ? 4 : 2, rest = elements == FloatForm::kFp32 ? 3 : 1;
  const size_t low_planes = elements == FloatForm::kFp16 ? 3 : 0;
  constexpr unsigned kMasked = 0x08, kPlain = 0x20, kZeros = 0x40;
  std::vector<uint8_t> block;
  for (size_t left = floats; left != 0; left -= std::min(left, kGroupFloats)) {
    const size_t here = std::min(left, kGroupFloats);
    unsigned head = static_cast<unsigned>(rng.below(rng.one_in(2) ? 16 : 32));
    if (head == 0x10 || head == 0x18) head = rng.one_in(2) ? kPlain : kZeros;
    block.push_back(static_cast<uint8_t>(head));
    size_t bytes = head == kPlain ? here * width : 0;
    if (head < kPlain) {
      block.push_back(rng.one_in(2) ? uint8_t{127} : static_cast<uint8_t>(rng.bits()));
      size_t sent = here;
      if ((head & kMasked) != 0) {
        const uint32_t mask = (rng.one_in(2) ? rng.bits() : rng.bits() & rng.bits() & rng.bits()) >> (32 - here);
        append_word(block, mask);
        sent = static_cast<size_t>(std::popcount(mask));
      }
      bytes = (head % 8 + low_planes) * ((sent + 7) / 8) + rest * sent;
    }
    for (; bytes != 0; --bytes) block.push_back(rng.one_in(4) ? uint8_t{0xff} : static_cast<uint8_t>(rng.bits()));
  }
  return block;
}

// Returns random tags, and a payload of the length that they announce. Payload bytes favour the ends of the ranges.
std::vector<uint8_t> foreign_block(Rng& rng, const Codec& codec, size_t floats) {
  constexpr uint8_t kEnds[] = {0x00, 0x01, 0x7f, 0x80, 0x81, 0xff};
  if (codec.least_bytes(floats) == codec.max_bytes(floats)) {
    std::vector<uint8_t> block(codec.max_bytes(floats));
    for (uint8_t& byte : block) byte = static_cast<uint8_t>(rng.bits());
    return block;
  }
  if (codec.row().layout == Form::kSparse) return foreign_sparse(rng, codec, floats);
  if (codec.row().layout == Form::kPacked) return foreign_packed(rng, codec.row().elements, floats);
  if (codec.id() == CodecId::kFixed) return foreign_planes(rng, floats);
  if (codec.row().layout != Form::kTagged) {
    return encode_all(codec, FloatSource(codec).make(rng, kKinds[rng.below(kKinds.size())], floats));
  }
  std::vector<uint8_t> block((floats + kGroupFloats - 1) / kGroupFloats * kTagBytes);
  size_t payload = 0;
  unsigned top_tag = 3;
  for (size_t i = 0; i < floats; ++i) {
    if (i % kGroupFloats == 0) top_tag = rng.one_in(4) ? 3 : 2;  // most groups have no raw float
    const unsigned tag = static_cast<unsigned>(rng.below(top_tag + 1));
    block[i / 4] = static_cast<uint8_t>(block[i / 4] | tag << (2 * (i % 4)));
    payload += tag == 3 ? 4 : tag;
  }
  for (; payload != 0; --payload)
    block.push_back(rng.one_in(2) ? kEnds[rng.below(6)] : static_cast<uint8_t>(rng.bits()));
  return block;
}

}  // namespace

namespace {

// Adds the names of a row without B: the example, and the example on the lattice if the row allows that.
void add_examples(std::vector<std::string>& names, const CodecRow& row) {
  names.emplace_back(row.example);
  if (row.takes_lattice) names.push_back(names.back() + "+fixed:10");
}

std::string variant_of(const CodecRow& row) { return row.variant != nullptr ? std::string(",") + row.variant : ""; }

}  // namespace

// If such a codec encodes its decoded values again, the bytes differ. So selection_test.cc tests these codecs.
bool selects(const CodecRow& row) {
  const bool exact = row.layout == Form::kLattice || row.layout == Form::kVotes;
  return exact && (row.agreement != Agreement::kNone || row.kernels[0]->encode_sum != nullptr);
}

std::vector<std::string> all_codecs() {
  std::vector<std::string> names;
  for (const CodecRow& row : codec_table()) {
    if (selects(row)) continue;
    if (row.max_bits == 0) add_examples(names, row);
    for (unsigned b = row.min_bits; b != 0 && b <= row.max_bits; ++b) {
      names.push_back(row.word + (":" + std::to_string(b)) + variant_of(row));
      if (row.option != nullptr) names.push_back(names.back() + "," + row.option);
    }
  }
  return names;
}

std::vector<std::string> some_codecs() {
  std::vector<std::string> names;
  for (const CodecRow& row : codec_table()) {
    if (selects(row)) continue;
    if (row.max_bits == 0) {
      add_examples(names, row);
      continue;
    }
    const std::string word = std::string(row.word) + ":";
    for (const unsigned b : {row.min_bits, row.max_bits / 2})
      names.push_back(word + std::to_string(b) + variant_of(row));
    names.emplace_back(row.example);
    names.push_back(word + std::to_string(row.max_bits) + variant_of(row));
    if (row.option != nullptr) names.back() += std::string(",") + row.option;
  }
  return names;
}

std::vector<std::string> and_halves(std::vector<std::string> names) {
  for (const CodecRow& row : codec_table()) {
    if (row.bf16 != nullptr) names.push_back(row.word + std::string(":bf16"));
    if (row.fp16 != nullptr) names.push_back(row.word + std::string(":fp16"));
  }
  return names;
}

Codec find_named(const std::string& name, Isa isa) {
  if (std::ranges::count(and_halves({}), name) == 0) return find_codec(name, isa);
  return find_codec(name.substr(0, name.find(':')), isa)
      .of(name.ends_with("bf16") ? FloatForm::kBf16 : FloatForm::kFp16);
}

size_t bytes_of_elements(const Codec& codec, size_t count) {
  return count * (codec.row().elements == FloatForm::kFp32 ? 4 : 2);
}

Codec ready_for(Codec codec, std::span<const float> floats, const float* residual, const float* second) {
  if (codec.passes() == 0) return codec;
  const auto scan = std::make_unique<TensorScan>();
  while (scan->pass < codec.passes()) {
    codec.scan(*scan, {floats.data(), residual, second, floats.size(), 0});
    codec.end_pass(*scan);
  }
  const float offers[] = {codec.offer(*scan)};
  codec.finish_scan(*scan, agreed_on(codec.row().agreement, offers));
  return codec;
}

uint32_t bits_of(float f) { return std::bit_cast<uint32_t>(f); }
float float_of(uint32_t bits) { return std::bit_cast<float>(bits); }

std::vector<uint32_t> bits_of(std::span<const float> floats) {
  std::vector<uint32_t> bits;
  for (const float f : floats) bits.push_back(bits_of(f));
  return bits;
}

FloatSource::FloatSource(const Codec& codec) : codec_(codec), step_(std::ldexp(1.0, 1 - bits_param(codec))) {
  std::vector<uint32_t> bits(std::begin(kSpecialBits), std::end(kSpecialBits));
  for (const double unit : {step_, std::ldexp(1.0, -(bits_param(codec) / 2)), 0x1p-15}) {
    for (const double steps : kEdgeSteps) {
      const uint32_t middle = bits_of(static_cast<float>(steps * unit));
      bits.insert(bits.end(), {middle - 1, middle, middle + 1});
    }
  }
  const double narrow_limit = codec.id() == CodecId::kFixed ? 32766.4 * step_ : 0x0.fffcp0;
  for (const uint32_t magnitude : bits) {
    for (const uint32_t sign : {0U, 0x80000000U}) {
      edges_.push_back(float_of(magnitude | sign));
      if (static_cast<double>(float_of(magnitude)) < narrow_limit) narrow_edges_.push_back(edges_.back());
    }
  }
}

float FloatSource::one(Rng& rng, Kind kind, size_t limit) const {
  const uint32_t any = rng.bits();
  switch (kind) {
    case Kind::kBits:
      return float_of(any);
    case Kind::kGradients:
      return float_of((any & 0x807fffff) | static_cast<uint32_t>(107 + rng.below(20)) << 23);
    case Kind::kEdges:
      return edges_[rng.below(edges_.size())];
    case Kind::kNarrowEdges:
      return narrow_edges_[rng.below(narrow_edges_.size())];
    case Kind::kSteps: {
      const double halves = static_cast<double>(rng.below(4 * limit + 1)) - 2.0 * static_cast<double>(limit);
      return static_cast<float>(halves * 0.5 * step_);
    }
    case Kind::kSparse:
      return rng.one_in(8) ? one(rng, Kind::kGradients, limit) : rng.one_in(4) ? -0.0F : 0.0F;
    case Kind::kOutliers:
      return rng.one_in(100) ? one(rng, Kind::kEdges, limit) : one(rng, Kind::kGradients, limit);
    case Kind::kResidual:
      if (rng.one_in(4)) return rng.one_in(2) ? -0.0F : 0.0F;
      return static_cast<float>((static_cast<double>(any) * 0x1p-32 - 0.5) * step_);
    case Kind::kMixed:
      break;
  }
  return 0.0F;
}

std::vector<float> FloatSource::make(Rng& rng, Kind kind, size_t count) const {
  std::vector<float> floats(count);
  Kind now = kind;
  size_t limit = kStepLimits[rng.below(std::size(kStepLimits))];
  for (size_t i = 0; i < count; ++i) {
    if (kind == Kind::kMixed && i % kGroupFloats == 0) {
      now = kKinds[rng.below(kKinds.size() - 1)];
      limit = kStepLimits[rng.below(std::size(kStepLimits))];
    }
    floats[i] = one(rng, now, limit);
  }
  if (codec_.row().elements != FloatForm::kFp32 && kind != Kind::kBits) {
    const std::vector<float> wide = floats;
    const std::span out(reinterpret_cast<uint8_t*>(floats.data()), bytes_of_elements(codec_, count));
    (void)codec_of(codec_.row().elements, codec_.isa()).encode(wide, out);
  }
  return floats;
}

std::vector<uint8_t> encode_all(const Codec& codec, std::span<const float> in) {
  std::vector<uint8_t> block(codec.max_bytes(in.size()));
  const EncodeResult result = codec.encode(in, block);
  if (result.floats != in.size()) std::abort();
  block.resize(result.bytes);
  return block;
}

std::vector<uint8_t> encode_all_sums(const Codec& codec, std::span<const float> sums) {
  std::vector<uint8_t> block(codec.max_bytes(sums.size()));
  const EncodeResult result = codec.encode_sum(
      {.in = sums.data(), .residual = nullptr, .floats = sums.size(), .out = block.data(), .room = block.size()});
  if (result.floats != sums.size()) std::abort();
  block.resize(result.bytes);
  return block;
}

bool comes_back(const Codec& codec, std::span<const uint8_t> block, size_t count) {
  const std::vector<float> floats = decode_all(codec, block, count);
  const std::vector<uint8_t> again = encode_all_sums(codec, floats);
  if (codec.id() != CodecId::kInceptionnLiteral) return std::ranges::equal(again, block);
  return again.size() <= block.size() && bits_of(decode_all(codec, again, count)) == bits_of(floats) &&
         encode_all_sums(codec, decode_all(codec, again, count)) == again;
}

std::vector<float> decode_all(const Codec& codec, std::span<const uint8_t> block, size_t floats) {
  std::vector<float> out(floats);
  if (codec.decode(block, out) != Status::kOk) std::abort();
  return out;
}

std::vector<uint8_t> make_block(Rng& rng, const Codec& codec, const FloatSource& source, BlockKind kind,
                                size_t floats) {
  if (kind == BlockKind::kForeign) return foreign_block(rng, codec, floats);
  const Kind scan = kKinds[rng.below(kKinds.size())];
  std::vector<uint8_t> block = encode_all(codec, source.make(rng, scan, floats));
  if (kind == BlockKind::kCorrupt && !block.empty()) {
    // The damaged byte is anywhere, among the tags, or where escapes are.
    const size_t tag_bytes = std::clamp(codec.least_bytes(floats), size_t{1}, block.size());
    const size_t end_bytes = std::min<size_t>(block.size(), 20);
    for (size_t turns = 1 + rng.below(3); turns != 0; --turns) {
      const size_t places[] = {rng.below(block.size()), rng.below(tag_bytes), block.size() - 1 - rng.below(end_bytes)};
      uint8_t& byte = block[places[rng.below(3)]];
      byte = static_cast<uint8_t>(byte ^ 1U << rng.below(8));
    }
  } else if (kind == BlockKind::kCut) {
    block.resize(rng.one_in(2) ? rng.below(block.size() + 1) : block.size() + 1 + rng.below(70));
  }
  return block;
}

}  // namespace gradlane::test
