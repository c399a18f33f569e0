// codec_table.cc - the rows of the table of codecs (set-up only, but for join())
#include "compress/codec_table.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <string_view>

#include "compress/avx2/avx2.h"
#include "compress/avx512/avx512.h"
#include "compress/planes.h"
#include "compress/scalar/scalar.h"

namespace gradlane {
namespace {

// ---- Layouts

template <size_t kWidth>
constexpr size_t flat_bytes(size_t floats) {
  return floats * kWidth;
}

// All zeros: nothing but their tags.
constexpr size_t tagged_least_bytes(size_t floats) { return groups_of(floats) * kTagBytes; }

// Two neighbours swap places.
void swap_parts(uint8_t* at, size_t first, size_t second) noexcept {
  if (first == 0 || second == 0) return;
  std::array<uint8_t, kMaxPacket / 2> shorter;  // of the two parts of any packet
  if (second <= first && second <= shorter.size()) {
    std::memcpy(shorter.data(), at + first, second);
    std::memmove(at + second, at, first);
    std::memcpy(at, shorter.data(), second);
  } else if (first <= shorter.size()) {
    std::memcpy(shorter.data(), at, first);
    std::memmove(at, at + first, second);
    std::memcpy(at + second, shorter.data(), first);
  } else {
    std::rotate(at, at + first, at + first + second);
  }
}

// [tags 1, payload 1, tags 2, payload 2] becomes [tags 1, tags 2, payload 1, payload 2].
size_t join_tagged(uint8_t* block, BlockSize first, BlockSize second) noexcept {
  const size_t tags = groups_of(first.floats) * kTagBytes;
  swap_parts(block + tags, first.bytes - tags, groups_of(second.floats) * kTagBytes);
  return first.bytes + second.bytes;
}

// Half a byte is between the tags of an odd number of groups and `bytes` bytes of tags behind them: these move there.
// Returns how many bytes are left of them.
size_t close_gap(uint8_t* tags, size_t bytes, size_t groups) noexcept {
  tags[-1] = static_cast<uint8_t>(tags[-1] | tags[0] << 4);
  size_t i = 0;
  for (uint64_t word; i + sizeof word < bytes; i += sizeof word) {
    std::memcpy(&word, tags + i, sizeof word);
    word = word >> 4 | static_cast<uint64_t>(tags[i + sizeof word]) << 60;
    std::memcpy(tags + i, &word, sizeof word);
  }
  for (; i < bytes; ++i) {
    const unsigned next = i + 1 < bytes ? tags[i + 1] : 0U;
    tags[i] = static_cast<uint8_t>(tags[i] >> 4 | next << 4);
  }
  return plane_tag_bytes(groups + 1) - 1;
}

// [tags 1, payload 1, escapes 1, tags 2, payload 2, escapes 2] becomes
// [tags 1, tags 2, payload 1, payload 2, escapes 2, escapes 1].
size_t join_planes(uint8_t* block, BlockSize first, BlockSize second) noexcept {
  const size_t groups = first.floats / kGroupFloats;
  const size_t more = groups_of(second.floats);
  const size_t bytes = first.bytes + second.bytes;
  if (groups == 0 || more == 0) return bytes;
  uint8_t* const tags = block + plane_tag_bytes(groups);  // of the second block
  const size_t tag_bytes = plane_tag_bytes(more);
  const size_t escapes = sum_tags(block, groups, block + first.bytes).escapes * kEscapeBytes;
  const auto rest = static_cast<size_t>(block + first.bytes - tags);
  swap_parts(tags, rest, tag_bytes);
  swap_parts(tags + tag_bytes + rest - escapes, escapes, second.bytes - tag_bytes);
  if (groups % 2 == 0) return bytes;
  const size_t left = close_gap(tags, tag_bytes, more);
  if (left == tag_bytes) return bytes;
  std::memmove(tags + left, tags + tag_bytes, rest + second.bytes - tag_bytes);
  return bytes - 1;
}

// ---- Parameters

CodecParams lattice(unsigned bits, int exponent) {
  CodecParams params;
  params.bits = bits;
  params.split = bits / 2;
  params.step = std::ldexp(1.0F, exponent);
  params.steps_per_one = std::ldexp(1.0F, -exponent);
  params.magic = 1.5F * 0x1p23F * params.step;
  params.exact = 0x1p23F * params.step;
  return params;
}
CodecParams fixed_params(unsigned bits) { return lattice(bits, 1 - static_cast<int>(bits)); }
CodecParams inceptionn_params(unsigned bits) { return lattice(bits, -15); }

// ---- Errors. Absolute ones of floating-point formats: half a step of their denormals

CodecError bf16_error(unsigned /*bits*/) { return {0x1p-8, 0x1p-134}; }
CodecError fp16_error(unsigned /*bits*/) { return {0x1p-11, 0x1p-25}; }
CodecError bound_error(unsigned bits) { return {0, std::ldexp(1.0, -static_cast<int>(bits))}; }

// ---- Rows

constexpr CodecRow kRows[] = {
    {.id = CodecId::kRaw,
     .word = "raw",
     .usage = "raw",
     .example = "raw",
     .promise = "fp32 as it is",
     .kernels = {&scalar::kRaw, &avx2::kRaw, &avx512::kRaw},
     .width = 4,
     .max_bytes = flat_bytes<4>,
     .least_bytes = flat_bytes<4>,
     .form = FloatForm::kFp32},
    {.id = CodecId::kBf16,
     .word = "bf16",
     .usage = "bf16",
     .example = "bf16",
     .promise = "bfloat16, relative error 2^-8",
     .kernels = {&scalar::kBf16, &avx2::kBf16, &avx512::kBf16},
     .width = 2,
     .max_bytes = flat_bytes<2>,
     .least_bytes = flat_bytes<2>,
     .error = bf16_error,
     .form = FloatForm::kBf16},
    {.id = CodecId::kFp16,
     .word = "fp16",
     .usage = "fp16",
     .example = "fp16",
     .promise = "IEEE half, relative error 2^-11",
     .kernels = {&scalar::kFp16, &avx2::kFp16, &avx512::kFp16},
     .width = 2,
     .max_bytes = flat_bytes<2>,
     .least_bytes = flat_bytes<2>,
     .error = fp16_error,
     .form = FloatForm::kFp16},
    {.id = CodecId::kInceptionn,
     .word = "inceptionn",
     .usage = "inceptionn:B[,truncate]",
     .example = "inceptionn:10",
     .promise = "error < 2^-B, B = 2..14",
     .kernels = {&scalar::kInceptionn, &avx2::kInceptionn, &avx512::kInceptionn},
     .params = inceptionn_params,
     .min_bits = 2,
     .max_bits = 14,
     .option = "truncate",
     .option_kernels = {&scalar::kInceptionnTruncate, &avx2::kInceptionnTruncate, &avx512::kInceptionnTruncate},
     .granule = kGroupFloats,
     .max_bytes = tagged_max_bytes,
     .least_bytes = tagged_least_bytes,
     .join = join_tagged,
     .error = bound_error,
     .accelerator = true,
     .engine = true},
    {.id = CodecId::kFixed,
     .word = "fixed",
     .usage = "fixed:B",
     .example = "fixed:10",
     .promise = "error <= 2^-B, exact sums, B = 1..30",
     .kernels = {&scalar::kFixed, &avx2::kFixed, &avx512::kFixed},
     .params = fixed_params,
     .min_bits = 1,
     .max_bits = 30,
     .granule = kGroupFloats,
     .max_bytes = plane_max_bytes,
     .least_bytes = plane_least_bytes,
     .join = join_planes,
     .error = bound_error,
     .feedback = true,
     .exact_sums = true,
     .adaptive = true,
     .accelerator = true},
};

// ---- What the rows must keep to

constexpr size_t kLongestText = 32;  // its final 0 included

// Else clients would hear a part of it (GL_NAME), and names be cut off (CodecName).
constexpr bool fits(std::string_view text) { return text.size() < kLongestText; }

constexpr bool complete(const CodecRow& row) {
  return row.kernels.scalar != nullptr && (row.option == nullptr || row.option_kernels.scalar != nullptr) &&
         row.max_bytes != nullptr && row.least_bytes != nullptr && row.example != nullptr &&
         row.max_bits < kOptionBit && fits(row.word) && fits(row.usage) && fits(row.example) &&
         (row.option == nullptr || row.max_bits > 0);
}

constexpr bool laid_out(const CodecRow& row) {
  if (row.granule != 1 && row.granule != kGroupFloats) return false;
  for (size_t floats = row.granule; floats <= 4 * kGroupFloats; floats += row.granule) {
    const size_t least = row.least_bytes(floats);
    const size_t most = row.max_bytes(floats);
    if (least > most || least == 0) return false;
    if (row.width != 0 && (least != floats * row.width || most != least)) return false;
    if (most > groups_of(floats) * kLongestGroup) return false;
  }
  return row.width != 0 || row.granule == kGroupFloats;
}

constexpr bool unlike(const CodecRow& row, const CodecRow& other) {
  return row.id != other.id && std::string_view(row.word) != other.word &&
         (row.form == FloatForm::kNone || row.form != other.form);
}

constexpr bool all_differ() {
  for (const CodecRow& row : kRows) {
    for (const CodecRow& other : kRows) {
      if (&row != &other && !unlike(row, other)) return false;
    }
  }
  return true;
}

static_assert(std::ranges::all_of(kRows, complete));
static_assert(std::ranges::all_of(kRows, laid_out));
static_assert(std::ranges::all_of(kRows, [](const CodecRow& row) { return row.exact() == (row.id == kNoCodec); }));
static_assert(all_differ() && kRows[0].exact());

}  // namespace

std::span<const CodecRow> codec_table() noexcept { return kRows; }

}  // namespace gradlane
