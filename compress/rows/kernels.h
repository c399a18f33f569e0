// kernels.h - the kernels of a codec in all instruction sets that this build has, as rows name them
#pragma once

#include "compress/codecs/tables.h"
#include "compress/isa.h"
#include "compress/scalar/scalar.h"

// CodecKernels of one name.
#if defined(__x86_64__)
#include "compress/avx2/avx2.h"
#include "compress/avx512/avx512.h"
#define GRADLANE_KERNELS(name) \
  { &scalar::name, &avx2::name, &avx512::name }
#else
#define GRADLANE_KERNELS(name) \
  { &scalar::name }
#endif
