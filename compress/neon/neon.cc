// neon.cc - the codecs in NEON that are not made with the kit, without INCEPTIONN's (any thread)
#include "compress/neon/neon.h"

#include "compress/neon/flat.h"
#include "compress/neon/planes.h"
#include "compress/passes.h"
#include "compress/selected_planes.h"

namespace gradlane::neon {

constexpr CodecOps kRaw = FlatPasses<FlatLanes, Raw>::ops();
constexpr CodecOps kBf16 = FlatPasses<FlatLanes, Bf16>::ops();
constexpr CodecOps kFp16 = FlatPasses<FlatLanes, Fp16>::ops();
constexpr CodecOps kFixed = PlanePasses<PlaneKernels>::ops();
constexpr CodecOps kRelative = with_scan<look_at>(kFixed);
constexpr CodecOps kStochastic = SelectedPasses<PlaneKernels, select_stochastic>::ops();
constexpr CodecOps kTernGrad = with_scan<look_at>(selected_by<encode_terngrad, hop_terngrad>(kFixed));
constexpr CodecOps kTbq = selected_by<encode_tbq, hop_tbq>(kFixed);

}  // namespace gradlane::neon
