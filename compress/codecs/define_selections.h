// define_selections.h - definitions of the functions in selection.h; included once by selections.cc of each instruction
// set
#pragma once

#include "compress/codecs/moments.h"
#include "compress/codecs/stochastic.h"
#include "compress/codecs/tbq.h"
#include "compress/codecs/ternary.h"
#include "compress/codecs/terngrad.h"

#define GRADLANE_DEFINE_SELECTIONS(Runs)                                                                               \
  void look_at(const CodecParams&, TensorScan& scan, const ScanJob& job) noexcept { scan_moments(scan, job); }         \
  void select_stochastic(const CodecParams& params, const SelectJob& job) noexcept { Stochastic(params).select(job); } \
  EncodeResult encode_terngrad(const CodecParams& params, const EncodeJob& job) noexcept {                             \
    return TernaryPasses<TernGrad, Runs>::encode(params, job);                                                         \
  }                                                                                                                    \
  HopResult hop_terngrad(const CodecParams& params, const HopJob& job) noexcept {                                      \
    return TernaryPasses<TernGrad, Runs>::hop(params, job);                                                            \
  }                                                                                                                    \
  EncodeResult encode_tbq(const CodecParams& params, const EncodeJob& job) noexcept {                                  \
    return TernaryPasses<Tbq, Runs>::encode(params, job);                                                              \
  }                                                                                                                    \
  HopResult hop_tbq(const CodecParams& params, const HopJob& job) noexcept {                                           \
    return TernaryPasses<Tbq, Runs>::hop(params, job);                                                                 \
  }
