// kernels.h - the kernels of a codec in all instruction sets of this build, for its row in the table
#pragma once

#include "compress/codecs/tables.h"
#include "compress/isa.h"
#include "compress/scalar/scalar.h"

// GRADLANE_KERNELS(name) lists the kernels `name` of all instruction sets, as a CodecKernels.
// GRADLANE_KERNELS_WITHOUT_NEON is for codecs that have no kernels for NEON.
#if defined(__x86_64__)
#include "compress/avx2/avx2.h"
#include "compress/avx512/avx512.h"
#define GRADLANE_KERNELS(name) \
  { &scalar::name, &avx2::name, &avx512::name }
#define GRADLANE_KERNELS_WITHOUT_NEON(name) GRADLANE_KERNELS(name)
#else
#include "compress/neon/neon.h"
#define GRADLANE_KERNELS(name) \
  { &scalar::name, &neon::name }
#define GRADLANE_KERNELS_WITHOUT_NEON(name) \
  { &scalar::name }
#endif
