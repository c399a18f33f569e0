// bf16.cc - codec bf16: the upper half of each float (any thread)
//
// docs/codec-format.md describes this format in prose.
#include "compress/scalar/flat.h"
#include "compress/scalar/scalar.h"

namespace gradlane::scalar {

constexpr CodecOps kBf16 = FlatPasses<FlatLanes, Form<Bf16>>::ops();

}  // namespace gradlane::scalar
