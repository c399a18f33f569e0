// avx2.cc - all codecs in AVX2; the only translation unit compiled with its flags (any thread)
#include "compress/avx2/avx2.h"

#include "compress/avx2/flat.h"
#include "compress/avx2/inceptionn.h"
#include "compress/avx2/planes.h"
#include "compress/avx2/tagged.h"
#include "compress/passes.h"

namespace gradlane::avx2 {

constexpr CodecOps kRaw = FlatPasses<FlatLanes, Raw>::ops();
constexpr CodecOps kBf16 = FlatPasses<FlatLanes, Bf16>::ops();
constexpr CodecOps kFp16 = FlatPasses<FlatLanes, Fp16>::ops();
constexpr CodecOps kInceptionn = TaggedPasses<Kernels, Inceptionn<false>>::ops();
constexpr CodecOps kInceptionnTruncate = TaggedPasses<Kernels, Inceptionn<true>>::ops();
constexpr CodecOps kFixed = PlanePasses<PlaneKernels>::ops();

}  // namespace gradlane::avx2
