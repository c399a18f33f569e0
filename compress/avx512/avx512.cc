// avx512.cc - the codecs in AVX-512 that are not made with the kit; only this folder is compiled with AVX-512's flags
// (any thread)
#include "compress/avx512/avx512.h"

#include "compress/avx512/flat.h"
#include "compress/avx512/inceptionn.h"
#include "compress/avx512/pack.h"
#include "compress/avx512/planes.h"
#include "compress/avx512/tagged.h"
#include "compress/passes.h"
#include "compress/selected_planes.h"

namespace gradlane::avx512 {

constexpr CodecOps kRaw = FlatPasses<FlatLanes, Raw>::ops();
constexpr CodecOps kBf16 = FlatPasses<FlatLanes, Bf16>::ops();
constexpr CodecOps kFp16 = FlatPasses<FlatLanes, Fp16>::ops();
constexpr CodecOps kInceptionn = TaggedPasses<Kernels, Inceptionn<false>>::ops();
constexpr CodecOps kInceptionnTruncate = TaggedPasses<Kernels, Inceptionn<true>>::ops();
constexpr CodecOps kPack = PackPasses<PackKernels<OfFp32>>::ops();
constexpr CodecOps kPackBf16 = PackPasses<PackKernels<OfBf16>>::ops();
constexpr CodecOps kPackFp16 = PackPasses<PackKernels<OfFp16>>::ops();
constexpr CodecOps kFixed = PlanePasses<PlaneKernels>::ops();
constexpr CodecOps kRelative = with_scan<look_at>(kFixed);
constexpr CodecOps kStochastic = SelectedPasses<PlaneKernels, select_stochastic>::ops();
constexpr CodecOps kTernGrad = with_scan<look_at>(selected_by<encode_terngrad, hop_terngrad>(kFixed));
constexpr CodecOps kTbq = selected_by<encode_tbq, hop_tbq>(kFixed);

}  // namespace gradlane::avx512
