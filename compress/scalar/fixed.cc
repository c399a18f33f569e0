// fixed.cc - codec fixed, multiples of 2^(1-b) in bit planes, and codecs that choose the multiples by other rules (any
// thread)
//
// docs/codec-format.md describes this format in prose.
#include "compress/scalar/scalar.h"
#include "compress/selected_planes.h"

namespace gradlane::scalar {
namespace {

// Kernels without any shortcuts.
struct PlaneKernels {
  using GroupOps = AnyGroup;
  template <bool kFeedback>
  static size_t encode(const PlaneJob&, size_t group, PlaneSink&, uint8_t*) {
    return group;
  }
  template <bool kFeedback>
  static size_t hop(const PlaneJob&, PlaneInput&, size_t group, PlaneSink&, uint8_t*) {
    return group;
  }
  template <bool kAdd>
  static size_t decode(const CodecParams&, PlaneInput&, float*, size_t group, size_t) {
    return group;
  }
};

}  // namespace

constexpr CodecOps kFixed = PlanePasses<PlaneKernels>::ops();
constexpr CodecOps kRelative = with_scan<look_at>(kFixed);
constexpr CodecOps kStochastic = SelectedPasses<PlaneKernels, select_stochastic>::ops();
constexpr CodecOps kTernGrad = with_scan<look_at>(selected_by<encode_terngrad, hop_terngrad>(kFixed));
constexpr CodecOps kTbq = selected_by<encode_tbq, hop_tbq>(kFixed);

}  // namespace gradlane::scalar
