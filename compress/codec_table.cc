// codec_table.cc - the rows of the table of codecs (set-up only, but for join())
#include "compress/codec_table.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <string_view>

#include "compress/avx2/avx2.h"
#include "compress/avx512/avx512.h"
#include "compress/layout.h"
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

// [tags 1, payload 1, tags 2, payload 2] becomes [tags 1, tags 2, payload 1, payload 2]: two neighbours swap places.
void join_tagged(uint8_t* block, size_t first_floats, size_t first_bytes, size_t second_floats) noexcept {
  const size_t first_tags = groups_of(first_floats) * kTagBytes;
  const size_t tags = groups_of(second_floats) * kTagBytes;
  const size_t payload = first_bytes - first_tags;
  if (tags == 0 || payload == 0) return;
  uint8_t* const at = block + first_tags;
  std::array<uint8_t, kMaxPacket / 2> shorter;  // of the two parts of any packet
  if (tags <= payload && tags <= shorter.size()) {
    std::memcpy(shorter.data(), at + payload, tags);
    std::memmove(at + tags, at, payload);
    std::memcpy(at, shorter.data(), tags);
  } else if (payload <= shorter.size()) {
    std::memcpy(shorter.data(), at, payload);
    std::memmove(at, at + payload, tags);
    std::memcpy(at + tags, shorter.data(), payload);
  } else {
    std::rotate(at, at + payload, at + payload + tags);
  }
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
     .max_bytes = tagged_max_bytes,
     .least_bytes = tagged_least_bytes,
     .join = join_tagged,
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
    if (least > most || least * kMostFloatsPerByte < floats) return false;
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
