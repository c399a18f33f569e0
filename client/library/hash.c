// hash.c - XXH64 with seed 0 (any thread; no context)
//
// The specification is https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md. Its numbers are little-endian,
// as are all machines that gradlane runs on.
#include "client/library/hash.h"

#include <string.h>

#include "client/gradlane.h"

static const uint64_t kPrime1 = UINT64_C(0x9e3779b185ebca87);
static const uint64_t kPrime2 = UINT64_C(0xc2b2ae3d27d4eb4f);
static const uint64_t kPrime3 = UINT64_C(0x165667b19e3779f9);
static const uint64_t kPrime4 = UINT64_C(0x85ebca77c2b2ae63);
static const uint64_t kPrime5 = UINT64_C(0x27d4eb2f165667c5);

static inline uint64_t rotate_left(uint64_t x, unsigned bits) { return x << bits | x >> (64 - bits); }

static inline uint64_t read_word(const uint8_t* data) {
  uint64_t word;
  memcpy(&word, data, sizeof(word));
  return word;
}

static inline uint64_t mix_word(uint64_t lane, uint64_t word) {
  return rotate_left(lane + word * kPrime2, 31) * kPrime1;
}

// Adds whole stripes.
static void add_stripes(uint64_t* lanes, const uint8_t* data, size_t bytes) {
  uint64_t a = lanes[0];
  uint64_t b = lanes[1];
  uint64_t c = lanes[2];
  uint64_t d = lanes[3];
  for (const uint8_t* const end = data + bytes; data < end; data += GL_HASH_STRIPE) {
    a = mix_word(a, read_word(data));
    b = mix_word(b, read_word(data + 8));
    c = mix_word(c, read_word(data + 16));
    d = mix_word(d, read_word(data + 24));
  }
  lanes[0] = a;
  lanes[1] = b;
  lanes[2] = c;
  lanes[3] = d;
}

void gl_start_hash(struct gl_hash* hash) {
  *hash = (struct gl_hash){.lanes = {kPrime1 + kPrime2, kPrime2, 0, 0 - kPrime1}};
}

void gl_add_to_hash(struct gl_hash* hash, const void* data, size_t bytes) {
  if (bytes == 0) return;  // `data` may be NULL
  const uint8_t* from = data;
  const size_t kept = hash->bytes % GL_HASH_STRIPE;
  hash->bytes += bytes;
  if (kept != 0) {
    const size_t room = GL_HASH_STRIPE - kept;
    const size_t taken = bytes < room ? bytes : room;
    memcpy(hash->rest + kept, from, taken);
    if (taken < room) return;
    add_stripes(hash->lanes, hash->rest, GL_HASH_STRIPE);
    from += taken;
    bytes -= taken;
  }
  const size_t rest = bytes % GL_HASH_STRIPE;
  add_stripes(hash->lanes, from, bytes - rest);
  memcpy(hash->rest, from + (bytes - rest), rest);
}

uint64_t gl_end_hash(const struct gl_hash* hash) {
  const uint64_t* const lanes = hash->lanes;
  uint64_t sum = kPrime5;
  if (hash->bytes >= GL_HASH_STRIPE) {
    sum = rotate_left(lanes[0], 1) + rotate_left(lanes[1], 7) + rotate_left(lanes[2], 12) + rotate_left(lanes[3], 18);
    for (unsigned i = 0; i < 4; ++i) sum = (sum ^ mix_word(0, lanes[i])) * kPrime1 + kPrime4;
  }
  sum += hash->bytes;
  const uint8_t* at = hash->rest;
  size_t left = hash->bytes % GL_HASH_STRIPE;
  for (; left >= 8; at += 8, left -= 8) {
    sum = rotate_left(sum ^ mix_word(0, read_word(at)), 27) * kPrime1 + kPrime4;
  }
  if (left >= 4) {
    uint32_t word;
    memcpy(&word, at, sizeof(word));
    sum = rotate_left(sum ^ word * kPrime1, 23) * kPrime2 + kPrime3;
    at += 4;
    left -= 4;
  }
  for (; left > 0; ++at, --left) sum = rotate_left(sum ^ *at * kPrime5, 11) * kPrime1;
  sum = (sum ^ sum >> 33) * kPrime2;
  sum = (sum ^ sum >> 29) * kPrime3;
  return sum ^ sum >> 32;
}

uint64_t gradlane_hash(const void* data, size_t bytes) {
  struct gl_hash hash;
  gl_start_hash(&hash);
  gl_add_to_hash(&hash, data, bytes);
  return gl_end_hash(&hash);
}
