// fixed.cc - codec fixed: multiples of 2^(1-b), in bit planes (any thread)
//
// docs/codec-format.md says the same in prose.
#include "compress/plane_passes.h"
#include "compress/scalar/scalar.h"

namespace gradlane::scalar {
namespace {

// No shortcuts.
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

}  // namespace gradlane::scalar
