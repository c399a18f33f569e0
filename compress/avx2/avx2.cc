// avx2.cc - all codecs in AVX2; the only translation unit compiled with its flags (any thread)
#include "compress/avx2/fixed.h"
#include "compress/avx2/flat.h"
#include "compress/avx2/inceptionn.h"
#include "compress/avx2/tagged.h"
#include "compress/passes.h"

namespace gradlane {

constexpr CodecOps kAvx2Ops[kOpsRows] = {
    FlatPasses<FlatLanes, Raw>::ops(),
    FlatPasses<FlatLanes, Bf16>::ops(),
    FlatPasses<FlatLanes, Fp16>::ops(),
    TaggedPasses<Kernels, Inceptionn<false>>::ops(),
    TaggedPasses<Kernels, Inceptionn<true>>::ops(),
    TaggedPasses<Kernels, Fixed>::ops(),
};

}  // namespace gradlane
