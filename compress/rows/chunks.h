// chunks.h - rows of codecs with a scale for each chunk, whose blocks cannot be summed while encoded
#pragma once

#include "compress/chunk_layout.h"
#include "compress/rows/common.h"
#include "compress/rows/kernels.h"

namespace gradlane {
namespace {

// Return the most and the fewest bytes of a block whose codes have kBits bits. If kBits is 0, they have B bits.
template <size_t kHeads, unsigned kBits>
constexpr size_t chunked_max_bytes(const CodecArguments& arguments, size_t floats) {
  return chunks_bytes(arguments.extra, kHeads, escape_bits(kBits != 0 ? kBits : arguments.bits), floats);
}
template <size_t kHeads, unsigned kBits>
constexpr size_t chunked_least_bytes(const CodecArguments& arguments, size_t floats) {
  return chunks_bytes(arguments.extra, kHeads, kBits != 0 ? kBits : arguments.bits, floats);
}

// Adds two allowances to an error: a step below 2^-126 becomes 0 (absolute), and computing with steps rounds
// (of_largest).
inline CodecError chunk_error(double relative, double of_largest) {
  return {.relative = relative, .absolute = 0x1p-116, .of_largest = of_largest + 0x1p-20};
}
inline CodecError onebit_error(const CodecArguments&) { return chunk_error(0, 1); }
inline CodecError qsgd_error(const CodecArguments& arguments) {
  return chunk_error(0, 1.0 / ((1U << arguments.bits) - 1));  // half a step, which is the distance of two values
}
inline CodecError int8_error(const CodecArguments&) { return chunk_error(0, 0.5 / 127); }
inline CodecError fp8_error(const CodecArguments&) { return chunk_error(0x1p-4, 0x1p-10 / 448); }

constexpr NumericParameter kChunkSize = {.place = ":", .least = 256, .most = 1024, .usual = 256, .power_of_two = true};
constexpr NumericParameter kBucketSize = {.place = "/", .least = 256, .most = 1024, .usual = 512, .power_of_two = true};

constexpr CodecRow kChunkRows[] = {
    {.id = CodecId::kOneBit,
     .word = "onebit",
     .usage = "onebit[:CHUNK]",
     .example = "onebit",
     .promise = "signs and two means per chunk, with feedback",
     .kernels = GRADLANE_KERNELS(kOneBit),
     .extra = kChunkSize,
     .granule = 0,
     .max_bytes = chunked_max_bytes<2, 1>,
     .least_bytes = chunked_least_bytes<2, 1>,
     .error = onebit_error,
     .layout = Form::kChunks,
     .feedback = true,
     .states = 2,
     .is_additive = false,
     .source = "Seide et al., Interspeech 2014"},
    {.id = CodecId::kQsgd,
     .word = "qsgd",
     .usage = "qsgd:B[/BUCKET]",
     .example = "qsgd:4",
     .promise = "2^B values from a bucket's smallest to its largest, B = 1..8 (with feedback 2..8)",
     .kernels = GRADLANE_KERNELS(kQsgd),
     .min_bits = 1,
     .max_bits = 8,
     .extra = kBucketSize,
     .granule = 0,
     .max_bytes = chunked_max_bytes<2, 0>,
     .least_bytes = chunked_least_bytes<2, 0>,
     .error = qsgd_error,
     .feedback_from = 2,  // with two values, residuals can be half of the range, and widen it
     .layout = Form::kChunks,
     .feedback = true,
     .states = 2,
     .is_additive = false,
     .source = "CGX, Markov et al., Middleware 2022; QSGD, Alistarh et al., NeurIPS 2017"},
    {.id = CodecId::kInt8,
     .word = "int8",
     .usage = "int8[:CHUNK]",
     .example = "int8",
     .promise = "255 values per chunk, error <= largest / 254",
     .kernels = GRADLANE_KERNELS(kInt8),
     .extra = kChunkSize,
     .granule = 0,
     .max_bytes = chunked_max_bytes<1, 8>,
     .least_bytes = chunked_least_bytes<1, 8>,
     .error = int8_error,
     .layout = Form::kChunks,
     .feedback = true,
     .states = 2,
     .is_additive = false,
     .source = "as torchft"},
    {.id = CodecId::kFp8,
     .word = "fp8",
     .usage = "fp8[:CHUNK]",
     .example = "fp8",
     .promise = "e4m3 and a scale per chunk, relative error 2^-4",
     .kernels = GRADLANE_KERNELS(kFp8),
     .extra = kChunkSize,
     .granule = 0,
     .max_bytes = chunked_max_bytes<1, 8>,
     .least_bytes = chunked_least_bytes<1, 8>,
     .error = fp8_error,
     .layout = Form::kChunks,
     .feedback = true,
     .states = 2,
     .is_additive = false,
     .source = "Micikevicius et al., 2022; as torchft"},
};

}  // namespace
}  // namespace gradlane
