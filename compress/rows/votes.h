// votes.h - rows of codecs whose contributions are signs, which add up as small integers
#pragma once

#include "compress/rows/common.h"
#include "compress/rows/kernels.h"
#include "compress/votes_layout.h"

namespace gradlane {
namespace {

// Votes are +1 or -1: the step is 1.
inline CodecParams votes_params(const CodecArguments&) { return lattice(0, 0); }

// ---- signsgd,ef

inline float offer_mean(const CodecParams&, const TensorScan& scan) {
  return scan.finite == 0 ? 0 : static_cast<float>(scan.magnitude / static_cast<double>(scan.finite));
}

// Sets the scale to the power of two whose ratio to `agreed` is nearest to 1. Its limits keep kMostVotes times the
// scale finite.
inline void finish_scan_scale(CodecParams& params, TensorScan&, float agreed) {
  constexpr int kLeast = -126, kMost = 119;
  int exponent = kLeast;
  if (agreed > 0) exponent = std::isinf(agreed) ? kMost : std::ilogb(agreed * 1.41421356F);
  params.scale = std::ldexp(1.0F, std::clamp(exponent, kLeast, kMost));
}

// Sets what these rows have in common.
constexpr CodecRow vote_row(CodecRow row) {
  row.params = votes_params;
  row.granule = kVoteFloats;
  row.max_bytes = bytes_of<votes_max_bytes>;
  row.least_bytes = bytes_of<votes_least_bytes>;
  row.error = unbounded;
  row.layout = Form::kVotes;
  row.exact_sums = true;
  return row;
}

constexpr CodecRow kVoteRows[] = {
    vote_row({.id = CodecId::kSignSgd,
              .word = "signsgd",
              .usage = "signsgd",
              .example = "signsgd",
              .promise = "the sign that most ranks have",
              .kernels = GRADLANE_KERNELS(kSignSgd),
              .source = "signSGD with majority vote: Bernstein et al., ICLR 2019"}),
    vote_row({.id = CodecId::kSignSgdTernary,
              .word = "signsgd",
              .usage = "signsgd,ternary",
              .example = "signsgd,ternary",
              .promise = "the same, but 0 where the votes are equal",
              .kernels = GRADLANE_KERNELS(kSignSgdTernary),
              .variant = "ternary",
              .source = "signSGD with majority vote: Bernstein et al., ICLR 2019"}),
    vote_row({.id = CodecId::kSignSgdFeedback,
              .word = "signsgd",
              .usage = "signsgd,ef",
              .example = "signsgd,ef",
              .promise = "signs times a common scale; the rest is sent later",
              .kernels = GRADLANE_KERNELS(kSignSgdFeedback),
              .variant = "ef",
              .passes = 1,
              .agreement = Agreement::kMean,
              .offer = offer_mean,
              .finish_scan = finish_scan_scale,
              .feedback = true,
              .source = "EF-SignSGD: Karimireddy et al., ICML 2019"}),
};

}  // namespace
}  // namespace gradlane
