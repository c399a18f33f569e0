// on_lattice.h - rows of codecs whose values are multiples of one step, in bit planes
#pragma once

#include "compress/planes.h"
#include "compress/rows/common.h"

namespace gradlane {
namespace {

// Moves the tags of `groups` groups, `bytes` bytes, down by half a byte. This closes the gap that an odd number of
// groups leaves before them. Returns how many of the bytes are still needed.
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

// Joins two blocks in place: [tags 1, payload 1, escapes 1, tags 2, payload 2, escapes 2] becomes [tags 1, tags 2,
// payload 1, payload 2, escapes 2, escapes 1].
size_t join_planes(uint8_t* block, BlockSize first, BlockSize second) noexcept {
  const size_t groups = first.floats / kGroupFloats;
  const size_t more = groups_of(second.floats);
  const size_t bytes = first.bytes + second.bytes;
  if (groups == 0 || more == 0) return bytes;
  uint8_t* const tags = block + plane_tag_bytes(groups);  // tags of the second block
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

inline CodecParams fixed_params(const CodecArguments& arguments) {
  return lattice(bits_of(arguments), 1 - static_cast<int>(bits_of(arguments)));
}

// Limits of the exponent of a step s. Within them, 2^24 s and 1 / s are normal floats.
constexpr int kLeastExponent = -126;
constexpr int kMostExponent = 103;

// Sets the step to 2^exponent, or to the nearest one within the limits.
inline void set_step(CodecParams& params, int exponent) {
  const CodecParams of_step = lattice(params.bits, std::clamp(exponent, kLeastExponent, kMostExponent));
  params.step = of_step.step;
  params.steps_per_one = of_step.steps_per_one;
  params.magic = of_step.magic;
  params.exact = of_step.exact;
}

// Returns the exponent of the greatest power of two that is not above `agreed`, a number that ranks agreed on.
inline int exponent_below(float agreed) {
  if (!(agreed > 0)) return kLeastExponent;
  return std::isinf(agreed) ? kMostExponent : std::ilogb(agreed);
}
inline int exponent_above(float agreed) {
  const int below = exponent_below(agreed);
  return std::ldexp(1.0F, below) < agreed ? below + 1 : below;
}

// ---- fixed:b,stochastic

inline CodecError stochastic_error(const CodecArguments& arguments) {
  return {.absolute = std::ldexp(1.0, 1 - static_cast<int>(bits_of(arguments)))};
}

// ---- fixed:rel=B: the step is that for a largest magnitude of 1, until the largest is known

inline void finish_scan_relative(CodecParams& params, TensorScan&, float agreed) {
  set_step(params, exponent_below(agreed) + 1 - static_cast<int>(params.bits));
}

inline float offer_largest(const CodecParams&, const TensorScan& scan) { return scan.largest; }

// The absolute error is half of the least step, 2^-126, which is used if the largest magnitude would need a smaller
// one.
inline CodecError relative_error(const CodecArguments& arguments) {
  return {.absolute = 0x1p-127, .of_largest = bound_error(arguments).absolute};
}

// ---- terngrad: s is 1 until it is known

inline CodecParams terngrad_params(const CodecArguments&) {
  CodecParams params = lattice(0, 0);
  params.threshold = 1;
  return params;
}

// Returns the magnitude at which this rank clips: CLIP standard deviations (the mean is taken to be 0), but at most its
// largest magnitude.
inline float offer_clip(const CodecParams& params, const TensorScan& scan) {
  if (scan.finite == 0) return 0;
  const double sigmas = params.arguments.extra / 100.0;
  const double clip = sigmas * std::sqrt(scan.square / static_cast<double>(scan.finite));
  return static_cast<float>(std::min(clip, static_cast<double>(scan.largest)));
}

inline void settle_terngrad(CodecParams& params, TensorScan& scan, float agreed) {
  set_step(params, exponent_above(agreed));
  params.threshold = std::min(offer_clip(params, scan), params.step);
}

// ---- tbq:b

inline CodecParams tbq_params(const CodecArguments& arguments) {
  return lattice(bits_of(arguments), -static_cast<int>(bits_of(arguments)));
}

// Sets what these rows have in common.
constexpr CodecRow lattice_row(CodecRow row) {
  row.granule = kGroupFloats;
  row.max_bytes = bytes_of<plane_max_bytes>;
  row.least_bytes = bytes_of<plane_least_bytes>;
  row.join = join_planes;
  row.layout = Form::kLattice;
  row.exact_sums = true;
  return row;
}

constexpr CodecRow kLatticeRows[] = {
    lattice_row({.id = CodecId::kFixed,
                 .word = "fixed",
                 .usage = "fixed:B",
                 .example = "fixed:10",
                 .promise = "error <= 2^-B, exact sums, B = 1..30",
                 .kernels = GRADLANE_KERNELS(kFixed),
                 .params = fixed_params,
                 .min_bits = 1,
                 .max_bits = 30,
                 .error = bound_error,
                 .feedback = true,
                 .adaptive = true,
                 .accelerator = true}),
    lattice_row({.id = CodecId::kStochastic,
                 .word = "fixed",
                 .usage = "fixed:B,stochastic",
                 .example = "fixed:10,stochastic",
                 .promise = "fixed:B, rounded up or down at random: no bias",
                 .kernels = GRADLANE_KERNELS(kStochastic),
                 .params = fixed_params,
                 .min_bits = 1,
                 .max_bits = 30,
                 .variant = "stochastic",
                 .error = stochastic_error,
                 .unbiased = true}),
    lattice_row({.id = CodecId::kRelative,
                 .word = "fixed",
                 .usage = "fixed:rel=B",
                 .example = "fixed:rel=10",
                 .promise = "error <= 2^-B of the largest, B = 1..23",
                 .kernels = GRADLANE_KERNELS(kRelative),
                 .params = fixed_params,
                 .min_bits = 1,
                 .max_bits = 23,
                 .prefix = "rel=",
                 .passes = 1,
                 .agreement = Agreement::kGreatest,
                 .offer = offer_largest,
                 .finish_scan = finish_scan_relative,
                 .error = relative_error,
                 .feedback = true}),
    lattice_row({.id = CodecId::kTernGrad,
                 .word = "terngrad",
                 .usage = "terngrad[:CLIP]",
                 .example = "terngrad",
                 .promise = "-s, 0 or s at random: no bias within CLIP sigma",
                 .kernels = GRADLANE_KERNELS(kTernGrad),
                 .params = terngrad_params,
                 .extra = {.place = ":", .least = 100, .most = 10000, .usual = 250, .per_one = 100},
                 .passes = 1,
                 .agreement = Agreement::kGreatest,
                 .offer = offer_clip,
                 .finish_scan = settle_terngrad,
                 .error = unbounded,
                 .unbiased = true,
                 .source = "TernGrad: Wen et al., NeurIPS 2017"}),
    lattice_row({.id = CodecId::kTbq,
                 .word = "tbq",
                 .usage = "tbq:B",
                 .example = "tbq:7",
                 .promise = "-2^-B, 0 or 2^-B; the rest is sent later, B = 1..30",
                 .kernels = GRADLANE_KERNELS(kTbq),
                 .params = tbq_params,
                 .min_bits = 1,
                 .max_bits = 30,
                 .error = unbounded,
                 .feedback = true,
                 .source = "Strom, Interspeech 2015"}),
};

}  // namespace
}  // namespace gradlane
