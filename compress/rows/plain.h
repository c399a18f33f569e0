// plain.h - rows of codecs that send floats unchanged, packed or in another format, and of INCEPTIONN's codec
#pragma once

#include "compress/pack_passes.h"
#include "compress/rows/common.h"
#include "compress/rows/kernels.h"

namespace gradlane {
namespace {

// Returns the bytes of a block of zeros, which has only tags.
constexpr size_t tagged_least_bytes(size_t floats) { return groups_of(floats) * kTagBytes; }

// Joins two blocks in place: [tags 1, payload 1, tags 2, payload 2] becomes [tags 1, tags 2, payload 1, payload 2].
size_t join_tagged(uint8_t* block, BlockSize first, BlockSize second) noexcept {
  const size_t tags = groups_of(first.floats) * kTagBytes;
  swap_parts(block + tags, first.bytes - tags, groups_of(second.floats) * kTagBytes);
  return first.bytes + second.bytes;
}

inline CodecParams inceptionn_params(const CodecArguments& arguments) { return lattice(bits_of(arguments), -15); }

// The absolute errors are half of the distance between adjacent denormals.
inline CodecError bf16_error(const CodecArguments&) { return {.relative = 0x1p-8, .absolute = 0x1p-134}; }
inline CodecError fp16_error(const CodecArguments&) { return {.relative = 0x1p-11, .absolute = 0x1p-25}; }

// Returns the row of pack for elements of a type.
template <class Type>
constexpr CodecRow pack_row(CodecKernels kernels, FloatForm elements) {
  return {.id = CodecId::kPack,
          .word = "pack",
          .usage = "pack",
          .example = "pack",
          .promise = "fp32, fp16 and bf16, unchanged, in fewer bytes",
          .kernels = kernels,
          .granule = Type::kGranule,
          .max_bytes = bytes_of<pack_max_bytes<Type>>,
          .least_bytes = bytes_of<groups_of>,
          .layout = Form::kPacked,
          .elements = elements};
}

constexpr CodecRow kPackBf16Row = pack_row<PackBf16>(GRADLANE_KERNELS_WITHOUT_NEON(kPackBf16), FloatForm::kBf16);
constexpr CodecRow kPackFp16Row = pack_row<PackFp16>(GRADLANE_KERNELS_WITHOUT_NEON(kPackFp16), FloatForm::kFp16);

constexpr CodecRow kPackRow = [] {
  CodecRow row = pack_row<PackFp32>(GRADLANE_KERNELS_WITHOUT_NEON(kPack), FloatForm::kFp32);
  row.serves = Serves::kUpTo32Bits;
  row.bf16 = &kPackBf16Row;
  row.fp16 = &kPackFp16Row;
  return row;
}();

constexpr CodecRow kPlainRows[] = {
    {.id = CodecId::kRaw,
     .word = "raw",
     .usage = "raw",
     .example = "raw",
     .promise = "fp32, unchanged",
     .kernels = GRADLANE_KERNELS(kRaw),
     .width = 4,
     .max_bytes = flat_bytes<4>,
     .least_bytes = flat_bytes<4>,
     .form = FloatForm::kFp32},
    kPackRow,
    {.id = CodecId::kExact,
     .word = "exact",
     .usage = "exact",
     .example = "exact",
     .promise = "sums rounded once, to nearest even",
     .kernels = GRADLANE_KERNELS(kRaw),
     .width = 4,
     .max_bytes = flat_bytes<4>,
     .least_bytes = flat_bytes<4>,
     .serves = Serves::kAllFloats,
     .is_additive = false,
     .rounds_once = true,
     .exact_sums = true},
    {.id = CodecId::kBf16,
     .word = "bf16",
     .usage = "bf16",
     .example = "bf16",
     .promise = "bfloat16, relative error 2^-8",
     .kernels = GRADLANE_KERNELS(kBf16),
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
     .kernels = GRADLANE_KERNELS(kFp16),
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
     .kernels = GRADLANE_KERNELS_WITHOUT_NEON(kInceptionn),
     .params = inceptionn_params,
     .min_bits = 2,
     .max_bits = 14,
     .option = "truncate",
     .option_kernels = GRADLANE_KERNELS_WITHOUT_NEON(kInceptionnTruncate),
     .granule = kGroupFloats,
     .max_bytes = bytes_of<tagged_max_bytes>,
     .least_bytes = bytes_of<tagged_least_bytes>,
     .join = join_tagged,
     .error = bound_error,
     .layout = Form::kTagged,
     .accelerator = true,
     .engine = true},
    {.id = CodecId::kInceptionnLiteral,
     .word = "inceptionn",
     .usage = "inceptionn:B,literal",
     .example = "inceptionn:10,literal",
     .promise = "the paper's code to the letter, no bound, B = 2..14",
     .kernels = {&scalar::kInceptionnLiteral},
     .params = inceptionn_params,
     .min_bits = 2,
     .max_bits = 14,
     .variant = "literal",
     .granule = kGroupFloats,
     .max_bytes = bytes_of<tagged_max_bytes>,
     .least_bytes = bytes_of<tagged_least_bytes>,
     .join = join_tagged,
     .error = unbounded,
     .layout = Form::kTagged,
     .source = "INCEPTIONN: Li et al., MICRO 2018"},
};

}  // namespace
}  // namespace gradlane
