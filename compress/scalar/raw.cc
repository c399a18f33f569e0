// raw.cc - codec raw: each float unchanged (any thread)
#include "compress/scalar/flat.h"
#include "compress/scalar/scalar.h"

namespace gradlane::scalar {

constexpr CodecOps kRaw = FlatPasses<FlatLanes, FlatLanes::Float>::ops();

}  // namespace gradlane::scalar
