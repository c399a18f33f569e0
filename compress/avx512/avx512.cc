// avx512.cc - all codecs in AVX-512; the only translation unit compiled with its flags (any thread)
#include "compress/avx512/avx512.h"

#include "compress/avx512/flat.h"
#include "compress/avx512/inceptionn.h"
#include "compress/avx512/planes.h"
#include "compress/avx512/tagged.h"
#include "compress/passes.h"

namespace gradlane::avx512 {

constexpr CodecOps kRaw = FlatPasses<FlatLanes, Raw>::ops();
constexpr CodecOps kBf16 = FlatPasses<FlatLanes, Bf16>::ops();
constexpr CodecOps kFp16 = FlatPasses<FlatLanes, Fp16>::ops();
constexpr CodecOps kInceptionn = TaggedPasses<Kernels, Inceptionn<false>>::ops();
constexpr CodecOps kInceptionnTruncate = TaggedPasses<Kernels, Inceptionn<true>>::ops();
constexpr CodecOps kFixed = PlanePasses<PlaneKernels>::ops();

}  // namespace gradlane::avx512
