// avx512.cc - all codecs in AVX-512; the only translation unit compiled with its flags (any thread)
#include "compress/avx512/fixed.h"
#include "compress/avx512/flat.h"
#include "compress/avx512/inceptionn.h"
#include "compress/avx512/tagged.h"
#include "compress/passes.h"

namespace gradlane {

constexpr CodecOps kAvx512Ops[kOpsRows] = {
    FlatPasses<FlatLanes, Raw>::ops(),
    FlatPasses<FlatLanes, Bf16>::ops(),
    FlatPasses<FlatLanes, Fp16>::ops(),
    TaggedPasses<Kernels, Inceptionn<false>>::ops(),
    TaggedPasses<Kernels, Inceptionn<true>>::ops(),
    TaggedPasses<Kernels, Fixed>::ops(),
};

}  // namespace gradlane
