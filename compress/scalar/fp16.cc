// fp16.cc - codec fp16: each float as IEEE half (any thread)
//
// docs/codec-format.md describes this format in prose.
#include "compress/scalar/flat.h"
#include "compress/scalar/scalar.h"

namespace gradlane::scalar {

constexpr CodecOps kFp16 = FlatPasses<FlatLanes, Form<Fp16>>::ops();

}  // namespace gradlane::scalar
