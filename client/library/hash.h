// hash.h - XXH64 with seed 0, of bytes that may come in pieces (any thread)
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { GL_HASH_STRIPE = 32 };  // bytes

struct gl_hash {
  uint64_t lanes[4];
  uint64_t bytes;                // number of bytes so far
  uint8_t rest[GL_HASH_STRIPE];  // the last bytes % GL_HASH_STRIPE of them, which are in no lane yet
};

void gl_start_hash(struct gl_hash* hash);
void gl_add_to_hash(struct gl_hash* hash, const void* data, size_t bytes);
uint64_t gl_end_hash(const struct gl_hash* hash);
