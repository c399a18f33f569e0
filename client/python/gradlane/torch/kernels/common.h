// common.h - parts that all kernels share: warps, offsets across thread blocks, words at any address (GPU; in tests,
// CPU)
//
// NVRTC compiles kernels at run time for the GPU of the machine. Tests compile the same text for the CPU, where
// tests/client/gpu/device.h runs the threads as fibers. So kernels use these parts of CUDA only: threadIdx.x,
// blockIdx.x, gridDim.x, __syncthreads(), functions of a full warp (ballot, shuffle), atomicAdd(), __nanosleep() (GPUs
// of compute capability 7.0 and later), and arithmetic on words.
//
// "Thread block" is CUDA's word here, and "block" is that of docs/codec-format.md.
#pragma once

#ifdef __CUDACC_RTC__
typedef unsigned char uint8_t;
typedef int int32_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
typedef unsigned long long uintptr_t;
// A variable that the threads of a thread block share.
#define GRADLANE_SHARED(type, name) __shared__ type name
#define GRADLANE_PRAGMA(text) _Pragma(#text)
#define GRADLANE_UNROLL(count) GRADLANE_PRAGMA(unroll count)
#endif

namespace gradlane::gpu {

constexpr uint32_t kFullWarp = 0xffffffff;
constexpr uint32_t kWarpLanes = 32;
constexpr uint32_t kThreads = 256;  // threads of each thread block
constexpr uint32_t kWarps = kThreads / kWarpLanes;
constexpr uint32_t kBlockFloats = 4096;  // floats of a block of an encoded tensor

constexpr uint32_t kMagnitude = 0x7fffffff;
constexpr uint32_t kInf = 0x7f800000;
constexpr uint32_t kCanonicalNan = 0x7fc00000;

__device__ inline uint32_t smaller(uint32_t a, uint32_t b) { return a < b ? a : b; }

__device__ inline uint32_t lane() { return threadIdx.x % kWarpLanes; }
__device__ inline uint32_t warp() { return threadIdx.x / kWarpLanes; }
// Returns a mask of the lanes before this one.
__device__ inline uint32_t lanes_below() { return (1U << lane()) - 1; }

__device__ inline uint32_t ballot(bool set) { return __ballot_sync(kFullWarp, set); }

// Return the bitwise OR, and the sum, of the values of all lanes.
__device__ inline uint32_t or_by_shuffles(uint32_t value) {
  for (uint32_t distance = kWarpLanes / 2; distance != 0; distance /= 2) {
    value |= __shfl_xor_sync(kFullWarp, value, static_cast<int>(distance));
  }
  return value;
}
__device__ inline uint32_t or_of_warp(uint32_t value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
  return or_by_shuffles(value);
#else
  return __reduce_or_sync(kFullWarp, value);
#endif
}
__device__ inline uint64_t sum_of_warp(uint64_t value) {
  for (uint32_t distance = kWarpLanes / 2; distance != 0; distance /= 2) {
    value += __shfl_xor_sync(kFullWarp, value, static_cast<int>(distance));
  }
  return value;
}

// Returns the sum of the values of this lane and of all lanes before it.
__device__ inline uint32_t sum_up_to_lane(uint32_t value) {
  for (uint32_t distance = 1; distance < kWarpLanes; distance *= 2) {
    const uint32_t before = __shfl_up_sync(kFullWarp, value, distance);
    if (lane() >= distance) value += before;
  }
  return value;
}

// Sums over warps: of those before this one, and of all.
struct Sums {
  uint32_t before;
  uint32_t all;
};
__device__ inline Sums sums_over(const uint32_t* of_warps) {
  Sums sums{0, 0};
  for (uint32_t k = 0; k < kWarps; ++k) {
    if (k == warp()) sums.before = sums.all;
    sums.all += of_warps[k];
  }
  return sums;
}

// ---- Offsets across thread blocks
//
// A thread block knows how many bytes it writes only after it has encoded them. Where they begin is the sum of the
// bytes of all thread blocks before it. This is the single-pass scan with decoupled look-back (Merrill and Garland,
// NVIDIA NVR-2016-002). Each thread block publishes one word: first its own bytes, then the sum up to its end.
// Flag and number are in the same word of 64 bits, so that no order of stores matters.

constexpr uint64_t kOwnBytes = 1ULL << 62;  // flag: the number is that of this thread block alone
constexpr uint64_t kAllBytes = 2ULL << 62;  // flag: the number is the sum up to this thread block
constexpr uint64_t kNumber = kOwnBytes - 1;

__device__ inline uint64_t load_state(const uint64_t* at) { return *static_cast<const volatile uint64_t*>(at); }
__device__ inline void store_state(uint64_t* at, uint64_t state) { *static_cast<volatile uint64_t*>(at) = state; }

// Publishes `bytes`, the length of thread block `number`, and returns the sum of the lengths before it. One warp of
// each thread block calls this. States are 0 at first. All thread blocks with lower numbers must have begun, or this
// waits forever.
__device__ inline uint64_t publish_bytes(uint64_t* states, uint64_t number, uint64_t bytes) {
  if (number != 0 && lane() == 0) store_state(states + number, kOwnBytes | bytes);
  uint64_t sum = 0;
  for (uint64_t left = number; left != 0; left -= kWarpLanes) {
    // Lane 0 reads the state of the thread block before `left`, lane 1 that of the one before it.
    const bool exists = lane() < left;
    uint64_t state = exists ? load_state(states + left - 1 - lane()) : kAllBytes;
    while (ballot(state == 0) != 0) {
      __nanosleep(20);
      if (state == 0) state = load_state(states + left - 1 - lane());
    }
    const uint32_t ends = ballot(state >= kAllBytes);
    const bool counts = (ends & lanes_below()) == 0;
    sum += sum_of_warp(counts ? state & kNumber : 0);
    if (ends != 0) break;
  }
  if (lane() == 0) store_state(states + number, kAllBytes | (sum + bytes));
  return sum;
}

// ---- Blocks of encoded tensors, and runs

// Returns the floats of a block of a tensor.
__device__ inline uint32_t floats_in_block(uint64_t floats, uint64_t number) {
  const uint64_t left = floats - number * kBlockFloats;
  return left < kBlockFloats ? static_cast<uint32_t>(left) : kBlockFloats;
}

// Returns where block `number` of `bytes` bytes begins in the encoded tensor `out`, and writes its numbers of the
// table. One warp calls this. states[0] counts the thread blocks that have begun.
__device__ inline uint64_t place_block(uint8_t* out, uint64_t* states, uint64_t number, uint64_t bytes) {
  const uint64_t table = (gridDim.x + uint64_t{1}) * sizeof(uint64_t);
  const uint64_t at = table + publish_bytes(states + 1, number, bytes);
  if (lane() == 0) {
    uint64_t* const entries = reinterpret_cast<uint64_t*>(out);
    entries[number + 1] = at + bytes;
    if (number == 0) entries[0] = table;
  }
  return at;
}

// A run of a result: one block of `floats` floats at byte `at` of an arena. They are those of a tensor from `first` on.
struct Run {
  uint64_t first;
  uint64_t at;
  uint32_t floats;
  uint32_t bytes;
};

struct CheckedRun {
  bool valid;
  Run run;
};

// Returns the block of this thread block in an encoded tensor. Sets *fault to 1 if its numbers of the table are wrong.
__device__ inline CheckedRun run_of_tensor(const uint8_t* encoded, uint64_t bytes, uint64_t floats, uint32_t* fault) {
  constexpr uint64_t kMostBytes = 5 * kBlockFloats;  // kMostEncodedBytes of compress/encoded_tensor.h
  const uint64_t number = blockIdx.x;
  const uint64_t table = (gridDim.x + uint64_t{1}) * sizeof(uint64_t);
  const uint64_t* const entries = reinterpret_cast<const uint64_t*>(encoded);
  const uint64_t begin = bytes < table ? 0 : entries[number];
  const uint64_t end = bytes < table ? 0 : entries[number + 1];
  const bool valid = begin >= table && begin <= end && end <= bytes && end - begin <= kMostBytes;
  if (!valid && threadIdx.x == 0) *fault = 1;
  return {valid, {number * kBlockFloats, begin, floats_in_block(floats, number), static_cast<uint32_t>(end - begin)}};
}

// Returns the run of this thread block. Sets *fault to 1 if it is outside of the arena or of the tensor.
__device__ inline CheckedRun checked_run(const Run* runs, uint64_t bytes, uint64_t floats, uint32_t* fault) {
  const Run run = runs[blockIdx.x];
  const bool valid =
      run.at <= bytes && run.bytes <= bytes - run.at && run.first <= floats && run.floats <= floats - run.first;
  if (!valid && threadIdx.x == 0) *fault = 1;
  return {valid, run};
}

// ---- Words at any address
//
// GPUs access words of 32 bits at multiples of 4 only. Memory of blocks begins and ends at such addresses.

__device__ inline uint32_t misalignment(const uint8_t* at) {
  return static_cast<uint32_t>(reinterpret_cast<uintptr_t>(at) % sizeof(uint32_t));
}

__device__ inline uint32_t load_word(const uint8_t* at) {
  const uint32_t shift = misalignment(at);
  const uint32_t* const aligned = reinterpret_cast<const uint32_t*>(at - shift);
  return shift == 0 ? aligned[0] : __funnelshift_r(aligned[0], aligned[1], 8 * shift);
}

__device__ inline void store_word(uint8_t* at, uint32_t word) {
  for (uint32_t i = 0; i < sizeof word; ++i) at[i] = static_cast<uint8_t>(word >> 8 * i);
}

// Copies words to `to`. All lanes of a warp call this.
__device__ inline void copy_words(uint8_t* to, const uint32_t* words, uint32_t count) {
  const uint32_t shift = misalignment(to);
  uint32_t* const aligned = reinterpret_cast<uint32_t*>(to - shift);
  if (shift == 0) {
    for (uint32_t i = lane(); i < count; i += kWarpLanes) aligned[i] = words[i];
    return;
  }
  if (count == 0) return;
  for (uint32_t i = lane() + 1; i < count; i += kWarpLanes) {
    aligned[i] = __funnelshift_l(words[i - 1], words[i], 8 * shift);
  }
  // Neighbours write the other bytes of the first and of the last word.
  if (lane() < sizeof(uint32_t) - shift) to[lane()] = static_cast<uint8_t>(words[0] >> 8 * lane());
  if (lane() < shift) {
    const uint32_t from = static_cast<uint32_t>(sizeof(uint32_t)) - shift + lane();
    reinterpret_cast<uint8_t*>(aligned + count)[lane()] = static_cast<uint8_t>(words[count - 1] >> 8 * from);
  }
}

}  // namespace gradlane::gpu
