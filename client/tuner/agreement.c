// agreement.c - digests of what must be alike on all ranks (pure)
#include "client/tuner/agreement.h"

uint64_t gl_digest(uint64_t digest, const void* bytes, size_t count) {
  const uint8_t* const from = bytes;
  for (size_t i = 0; i < count; ++i) digest = (digest ^ from[i]) * UINT64_C(0x100000001b3);
  return digest;
}
