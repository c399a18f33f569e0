// fixed.cu - kernels of codec fixed: floats to an encoded tensor, and back (GPU; in tests, CPU)
//
// The bytes are those of encode_tensor() in compress/encoded_tensor.h: docs/codec-format.md, "Bit planes" and "Encoded
// tensors". Residuals are those of "Error feedback of `fixed`".
//
// A thread block encodes one block of 4096 floats, and a lane has one float of each group of 32. So a plane is one
// ballot, and a raw float's place is the number of lanes before it that are raw, too. A warp encodes 16 groups, one
// after the other, into shared memory. Afterwards the length of the block is known, and publish_bytes() says where it
// begins. Each warp then copies its groups there. Floats are read once, and bytes are written once.
//
// A thread block takes its number from a counter. So those with lower numbers have begun, and they never wait for
// higher ones. That is why publish_bytes() ends.
//
// To decode, a thread block reads tags and escapes of 128 groups at a time, and sums their lengths. Then each warp
// decodes groups. Lane i loads word i of a group, because planes and raw floats are 32 words at most. All lanes get
// plane j from lane j. Whatever the bytes are, nothing outside the block is read, except for the rest of its first and
// last word of 4 bytes.
#include "common.h"

namespace gradlane::gpu::fixed {

constexpr uint32_t kGroupFloats = 32;
constexpr uint32_t kBlockGroups = kBlockFloats / kGroupFloats;
constexpr uint32_t kWarpGroups = kBlockGroups / kWarps;
constexpr uint32_t kWarpFloats = kWarpGroups * kGroupFloats;
constexpr uint32_t kBatch = 4;  // groups of a warp whose floats are loaded before any of them is encoded
constexpr uint32_t kEscape = 15;
constexpr uint32_t kEscapeBytes = 5;
constexpr uint32_t kMostPlanes = 16;
constexpr uint32_t kMinusZero = 0x80000000;

__device__ inline uint32_t groups_of(uint32_t floats) {
  return floats / kGroupFloats + (floats % kGroupFloats != 0 ? 1 : 0);
}
__device__ inline uint32_t tag_bytes_of(uint32_t groups) { return groups / 2 + groups % 2; }

// Numbers of fixed:bits. The step is 2^(1 - bits).
struct Lattice {
  float step;
  float steps_per_one;
  uint32_t exact;  // bits of 2^23 steps: from this magnitude on, floats are multiples of the step, Inf or NaN
};

__device__ inline Lattice lattice_of(uint32_t bits) {
  return {__uint_as_float((128 - bits) << 23), __uint_as_float((126 + bits) << 23), (151 - bits) << 23};
}

// A float to encode: its multiple of the step, or its own bits.
struct Rounded {
  uint32_t bits;
  int32_t steps;
  bool raw;  // `steps` does not fit into 16 planes, and is 0
};

__device__ inline Rounded rounded_to(const Lattice& lattice, uint32_t x) {
  if ((x & kMagnitude) >= lattice.exact) return {x, 0, true};
  const float steps = rintf(__fmul_rn(__uint_as_float(x), lattice.steps_per_one));
  const uint32_t bits = __float_as_uint(__fmul_rn(steps, lattice.step));
  const bool fits = -32768.0F <= steps && steps <= 32767.0F;
  return {bits, fits ? static_cast<int32_t>(steps) : 0, !fits};
}

// Returns the bits of a + b. Every NaN result is the same.
__device__ inline uint32_t add(uint32_t a, uint32_t b) {
  const uint32_t sum = __float_as_uint(__fadd_rn(__uint_as_float(a), __uint_as_float(b)));
  return (sum & kMagnitude) > kInf ? kCanonicalNan : sum;
}

// Returns what rounding has lost of x, and 0 for Inf and NaN. x and `rounded` have the same sign, so a
// difference of zero is +0.
__device__ inline uint32_t residual_of(uint32_t x, uint32_t rounded) {
  if ((x & kMagnitude) >= kInf) return 0;
  return __float_as_uint(__fsub_rn(__uint_as_float(x), __uint_as_float(rounded)));
}

// Planes and raw floats of a group.
struct Group {
  uint32_t width;
  uint32_t raw;  // a bit for each float that travels as fp32

  __device__ uint32_t words() const { return width + static_cast<uint32_t>(__popc(raw)); }
  __device__ uint32_t tag() const { return raw == 0 && width < kEscape ? width : kEscape; }
};

// Writes the words of a group of `count` floats, one in each lane. Missing floats are 0. All lanes return the group.
__device__ inline Group put_group(const Rounded& mine, uint32_t count, uint32_t* words) {
  const uint32_t bits = static_cast<uint32_t>(mine.steps);
  const uint32_t used = or_of_warp(bits << 1 ^ (mine.steps < 0 ? kFullWarp : 0));
  Group group{kWarpLanes - static_cast<uint32_t>(__clz(static_cast<int>(used))), ballot(mine.raw)};
  if (group.words() > count) group = {0, kFullWarp >> (kGroupFloats - count)};
  uint32_t plane = 0;
  for (uint32_t j = 0; j < group.width; ++j) {
    const uint32_t word = ballot((bits >> j & 1) != 0);
    if (lane() == j) plane = word;
  }
  if (lane() < group.width) words[lane()] = plane;
  if ((group.raw >> lane() & 1) != 0) {
    const uint32_t place = group.width + static_cast<uint32_t>(__popc(group.raw & lanes_below()));
    words[place] = mine.bits == kMinusZero ? 0 : mine.bits;
  }
  return group;
}

// Words and escapes of some groups in one number: at most 4096 words and 128 escapes.
constexpr uint32_t kOneEscape = 1U << 16;
__device__ inline uint32_t words_in(uint32_t sums) { return sums % kOneEscape; }
__device__ inline uint32_t escapes_in(uint32_t sums) { return sums / kOneEscape; }

// ---- Encoding

struct EncodeMemory {
  uint32_t words[kWarps][kWarpFloats];
  uint32_t sums[kWarps];
  uint64_t number;  // of the block
  uint64_t at;      // where the block begins
};

// Encodes the groups of this warp, which have `floats` floats. Lane i returns group i, and `words` becomes the number
// of their words.
__device__ inline Group encode_groups(const Lattice& lattice, const uint32_t* in, uint32_t* residual, uint32_t floats,
                                      uint32_t* out, uint32_t& words) {
  Group mine{0, 0};
  for (uint32_t first = 0; first < kWarpGroups; first += kBatch) {
    uint32_t x[kBatch];
    GRADLANE_UNROLL(kBatch)
    for (uint32_t k = 0; k < kBatch; ++k) {
      const uint32_t i = (first + k) * kGroupFloats + lane();
      x[k] = i < floats ? in[i] : 0;
      if (residual != nullptr && i < floats) x[k] = add(x[k], residual[i]);
    }
    GRADLANE_UNROLL(kBatch)
    for (uint32_t k = 0; k < kBatch; ++k) {
      const uint32_t begin = (first + k) * kGroupFloats;
      const uint32_t count = begin < floats ? smaller(floats - begin, kGroupFloats) : 0;
      const Rounded rounded = rounded_to(lattice, x[k]);
      if (residual != nullptr && lane() < count) residual[begin + lane()] = residual_of(x[k], rounded.bits);
      const Group group = put_group(rounded, count, out + words);
      if (lane() == first + k) mine = group;
      words += group.words();
    }
  }
  return mine;
}

// Encodes `floats` floats with fixed:bits. The grid has a thread block of kThreads threads for each block of floats.
// `out` is a multiple of 8 and has space for the longest encoded tensor. Its table's last number is the length.
// `residual` is null, or has the residuals, which are added and replaced. `states` are 1 + blocks words of 0.
extern "C" __global__ void __launch_bounds__(kThreads)
    gradlane_fixed_encode(const uint32_t* in, uint32_t* residual, uint64_t floats, uint32_t bits, uint8_t* out,
                          uint64_t* states) {
  GRADLANE_SHARED(EncodeMemory, memory);
  if (threadIdx.x == 0) memory.number = atomicAdd(states, uint64_t{1});
  __syncthreads();
  const uint64_t number = memory.number;
  const uint32_t in_block = floats_in_block(floats, number);
  const uint32_t skipped = warp() * kWarpFloats;
  const uint64_t first = number * kBlockFloats + skipped;
  uint32_t words = 0;
  Group mine{0, 0};
  if (skipped < in_block) {
    mine = encode_groups(lattice_of(bits), in + first, residual == nullptr ? nullptr : residual + first,
                         smaller(in_block - skipped, kWarpFloats), memory.words[warp()], words);
  }
  const uint32_t tag = mine.tag();
  const uint32_t escaped = ballot(tag == kEscape);
  if (lane() == 0) memory.sums[warp()] = words + static_cast<uint32_t>(__popc(escaped)) * kOneEscape;
  __syncthreads();

  const Sums sums = sums_over(memory.sums);
  const uint32_t tag_bytes = tag_bytes_of(groups_of(in_block));
  const uint64_t bytes = tag_bytes + words_in(sums.all) * sizeof(uint32_t) + escapes_in(sums.all) * kEscapeBytes;
  if (warp() == 0) {
    const uint64_t at = place_block(out, states, number, bytes);
    if (lane() == 0) memory.at = at;
  }
  __syncthreads();

  uint8_t* const block = out + memory.at;
  // Lane i writes the tags of groups 2 i and 2 i + 1 of this warp.
  const uint32_t low = __shfl_sync(kFullWarp, tag, static_cast<int>(2 * lane() % kWarpLanes));
  const uint32_t high = __shfl_sync(kFullWarp, tag, static_cast<int>((2 * lane() + 1) % kWarpLanes));
  const uint32_t tag_at = warp() * (kWarpGroups / 2) + lane();
  if (lane() < kWarpGroups / 2 && tag_at < tag_bytes) block[tag_at] = static_cast<uint8_t>(low | high << 4);
  copy_words(block + tag_bytes + words_in(sums.before) * sizeof(uint32_t), memory.words[warp()], words);
  if (tag == kEscape) {
    const uint32_t before = escapes_in(sums.before) + static_cast<uint32_t>(__popc(escaped & lanes_below()));
    uint8_t* const escape = block + bytes - (before + 1) * kEscapeBytes;
    escape[0] = static_cast<uint8_t>(mine.width);
    store_word(escape + 1, mine.raw);
  }
}

// ---- Decoding

struct DecodeMemory {
  uint32_t escapes[kWarps];
  uint32_t words[kWarps];
  uint32_t place[kBlockGroups];  // words of the block before each group
  Group group[kBlockGroups];
};

// Returns the bits of a / b, rounded to nearest even. `a` has the bits of a float, `b` is a number. Every NaN result is
// the same.
__device__ inline uint32_t divide(uint32_t a, uint32_t b) {
  const uint32_t quotient = __float_as_uint(__fdiv_rn(__uint_as_float(a), static_cast<float>(b)));
  return (quotient & kMagnitude) > kInf ? kCanonicalNan : quotient;
}

// Decodes a group of `count` floats whose words begin at `at`, and divides them by `divisor`, unless that is 1.
__device__ inline void get_group(const Lattice& lattice, Group group, const uint8_t* at, uint32_t count,
                                 uint32_t divisor, uint32_t* out) {
  const uint32_t word = lane() < group.words() ? load_word(at + lane() * sizeof(uint32_t)) : 0;
  uint32_t bits = 0;
  for (uint32_t j = 0; j < group.width; ++j) {
    bits |= (__shfl_sync(kFullWarp, word, static_cast<int>(j)) >> lane() & 1) << j;
  }
  // The highest plane has the signs.
  const uint32_t sign = group.width == 0 ? 0 : 1U << (group.width - 1);
  const int32_t steps = static_cast<int32_t>((bits ^ sign) - sign);
  uint32_t value = __float_as_uint(__fmul_rn(static_cast<float>(steps), lattice.step));
  if (group.raw != 0) {
    const uint32_t place = group.width + static_cast<uint32_t>(__popc(group.raw & lanes_below()));
    const uint32_t raw = __shfl_sync(kFullWarp, word, static_cast<int>(place % kWarpLanes));
    if ((group.raw >> lane() & 1) != 0) value = raw;
  }
  if (divisor != 1) value = divide(value, divisor);
  if (lane() < count) out[lane()] = value;
}

// Returns group `number`, of this tag, of a block of `bytes` bytes. `escapes` groups before it are escaped. Sets
// `valid` to false if the escape is malformed.
__device__ inline Group load_group(const uint8_t* block, uint32_t bytes, uint32_t floats, uint32_t number, uint32_t tag,
                                   uint32_t escapes, bool& valid) {
  if (tag != kEscape) return {tag, 0};
  const uint64_t end = (escapes + uint64_t{1}) * kEscapeBytes;
  if (end > bytes) {
    valid = false;
    return {0, 0};
  }
  const uint8_t* const escape = block + bytes - end;
  const Group group{escape[0], load_word(escape + 1)};
  const uint32_t rest = floats - number * kGroupFloats;
  const bool beyond = rest < kGroupFloats && group.raw >> rest != 0;
  if (group.width <= kMostPlanes && group.words() <= kGroupFloats && !beyond) return group;
  valid = false;
  return {0, 0};
}

// Decodes a block. All threads of the thread block call this. Sets *fault to 1 if the block is malformed; the content
// of `out` is then unspecified.
__device__ inline void decode_block(const Lattice& lattice, const uint8_t* block, uint32_t bytes, uint32_t floats,
                                    uint32_t divisor, uint32_t* out, uint32_t* fault) {
  GRADLANE_SHARED(DecodeMemory, memory);
  const uint32_t groups = groups_of(floats);
  const uint32_t tag_bytes = tag_bytes_of(groups);
  bool valid = bytes >= tag_bytes;
  if (!valid) {
    if (threadIdx.x == 0) *fault = 1;
    return;
  }
  uint64_t words = 0;  // of all groups before
  uint32_t escapes = 0;
  for (uint32_t first = 0; first < groups; first += kBlockGroups) {
    const uint32_t number = first + threadIdx.x;
    const bool exists = threadIdx.x < kBlockGroups && number < groups;
    const uint32_t tag = exists ? block[number / 2] >> number % 2 * 4 & 15U : 0;
    const uint32_t escaped = ballot(tag == kEscape);
    if (lane() == 0) memory.escapes[warp()] = static_cast<uint32_t>(__popc(escaped));
    __syncthreads();
    const Sums escape_sums = sums_over(memory.escapes);
    const uint32_t own = escapes + escape_sums.before + static_cast<uint32_t>(__popc(escaped & lanes_below()));
    Group group = load_group(block, bytes, floats, number, tag, own, valid);
    const uint32_t up_to = sum_up_to_lane(group.words());
    if (lane() == kWarpLanes - 1) memory.words[warp()] = up_to;
    __syncthreads();
    const Sums word_sums = sums_over(memory.words);
    const uint64_t end = words + word_sums.before + up_to;
    if (tag_bytes + end * sizeof(uint32_t) > bytes) {
      valid = false;
      group = {0, 0};
    }
    if (exists) {
      memory.place[threadIdx.x] = word_sums.before + up_to - group.words();
      memory.group[threadIdx.x] = group;
    }
    __syncthreads();
    const uint8_t* const payload = block + tag_bytes + words * sizeof(uint32_t);
    const uint32_t here = smaller(groups - first, kBlockGroups);
    GRADLANE_UNROLL(4)
    for (uint32_t k = warp(); k < here; k += kWarps) {
      const uint32_t begin = (first + k) * kGroupFloats;
      const uint32_t count = smaller(floats - begin, kGroupFloats);
      get_group(lattice, memory.group[k], payload + memory.place[k] * sizeof(uint32_t), count, divisor, out + begin);
    }
    words += word_sums.all;
    escapes += escape_sums.all;
    // All threads have read memory.escapes before the last barrier. So the next groups may overwrite it here.
  }
  if (groups % 2 != 0 && block[tag_bytes - 1] >> 4 != 0) valid = false;
  if (bytes != tag_bytes + words * sizeof(uint32_t) + uint64_t{escapes} * kEscapeBytes) valid = false;
  if (!valid) *fault = 1;
}

// Decodes an encoded tensor of `floats` floats. The grid has a thread block of kThreads threads for each block.
// `encoded` is a multiple of 8, and its memory ends at a multiple of 4. *fault, 0 at first, becomes 1 if the table or a
// block is malformed.
extern "C" __global__ void __launch_bounds__(kThreads)
    gradlane_fixed_decode(const uint8_t* encoded, uint64_t bytes, uint64_t floats, uint32_t bits, uint32_t* out,
                          uint32_t* fault) {
  const auto [valid, run] = run_of_tensor(encoded, bytes, floats, fault);
  if (valid) decode_block(lattice_of(bits), encoded + run.at, run.bytes, run.floats, 1, out + run.first, fault);
}

// Decodes runs, each by one thread block of kThreads threads, to a tensor of `floats` floats, and divides each float by
// `divisor`, as an average does. The arena is a multiple of 4, and its memory ends at such a multiple. *fault, 0 at
// first, becomes 1 if a run is malformed or outside.
extern "C" __global__ void __launch_bounds__(kThreads)
    gradlane_fixed_decode_runs(const Run* runs, const uint8_t* arena, uint64_t bytes, uint64_t floats, uint32_t bits,
                               uint32_t divisor, uint32_t* out, uint32_t* fault) {
  const auto [valid, run] = checked_run(runs, bytes, floats, fault);
  if (valid) decode_block(lattice_of(bits), arena + run.at, run.bytes, run.floats, divisor, out + run.first, fault);
}

}  // namespace gradlane::gpu::fixed
