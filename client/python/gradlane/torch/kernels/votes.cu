// votes.cu - kernels of the signsgd codecs: floats to votes in encoded tensors, and votes to floats (GPU; in tests,
// CPU)
//
// docs/codec-format.md, "Votes", has the records. No caller uses these kernels yet, and the CPU reads no encoded
// tensors of votes. Blocks have 4096 floats and a table, as in "Encoded tensors". Records stand side by side, so the
// blocks together are what Codec::encode() writes for the whole tensor.
//
// A thread block encodes a block, and each warp two records. A lane has one float of each 32. So each word of a plane
// is one ballot, and lane k keeps word k. common.h finds where the block begins.
#include "common.h"

namespace gradlane::gpu::votes {

constexpr uint32_t kRecordFloats = 256;
constexpr uint32_t kRecordWords = kRecordFloats / kWarpLanes;  // words of a plane
constexpr uint32_t kBlockRecords = kBlockFloats / kRecordFloats;
constexpr uint32_t kWarpRecords = kBlockRecords / kWarps;
constexpr uint32_t kCodePlanes = 2;
constexpr uint32_t kMostPlanes = 2 + kCodePlanes;  // of one rank's votes
constexpr uint32_t kHeadBytes = 2;
constexpr uint32_t kMostVotes = 256;
constexpr uint32_t kRangeBits = 0x3ff;
constexpr uint32_t kUnusedBits = 0x3c00;
constexpr uint32_t kSingleBit = 0x4000;   // values are c - m; without it they are 2 c - m
constexpr uint32_t kSpecialBit = 0x8000;  // codes follow: 0 finite, 1 Inf, 2 -Inf, 3 NaN
constexpr uint32_t kSignBit = 0x80000000;

__device__ inline uint32_t plane_bytes(uint32_t floats) { return floats / 8 + (floats % 8 != 0 ? 1 : 0); }

// Return the planes of c of a record with this head, and the bytes of the record.
__device__ inline uint32_t planes_of(uint32_t head) {
  const uint32_t range = head & kRangeBits;
  const uint32_t most = (head & kSingleBit) != 0 ? 2 * range : range;
  return kWarpLanes - static_cast<uint32_t>(__clz(static_cast<int>(most)));
}
__device__ inline uint32_t bytes_of(uint32_t head, uint32_t floats) {
  const uint32_t planes = planes_of(head) + ((head & kSpecialBit) != 0 ? kCodePlanes : 0);
  return kHeadBytes + planes * plane_bytes(floats);
}

// ---- Encoding

// Random numbers of a rank, by the position in the tensor.
struct Random {
  uint32_t first;
  uint32_t second;

  // Returns a number whose upper bits are random.
  __device__ uint32_t upper(uint32_t position) const {
    uint32_t x = position + first;
    x = (x ^ x >> 16) * 0x85ebca6b;
    return ((x ^ x >> 13) + second) * 0xc2b2ae35;
  }
};

__device__ inline Random random_of(uint64_t seed) {
  uint64_t y = seed + 0x9e3779b97f4a7c15;
  y = (y ^ y >> 30) * 0xbf58476d1ce4e5b9;
  y = (y ^ y >> 27) * 0x94d049bb133111eb;
  y ^= y >> 31;
  return {static_cast<uint32_t>(y), static_cast<uint32_t>(y >> 32)};
}

// What a rank votes for: `abstains` says that 0 has no vote. Otherwise 0 votes for a sign drawn at random. A vote
// stands for `scale`, which residuals depend on.
struct Rule {
  bool abstains;
  Random random;
  float scale;
};

// Writes the planes of a record of `count` floats, kRecordWords words each, and returns its head. `position` is that of
// its first float in the tensor.
__device__ inline uint32_t put_votes(const Rule& rule, const uint32_t* in, uint32_t* residual, uint64_t position,
                                     uint32_t count, uint32_t* words) {
  uint32_t plus = 0, none = 0, low = 0, high = 0;  // words of lane k: votes of +1, no votes, and codes
  bool some = false, any_none = false, special = false;
  GRADLANE_UNROLL(kRecordWords)
  for (uint32_t k = 0; k < kRecordWords; ++k) {
    const uint32_t i = k * kWarpLanes + lane();
    const bool exists = i < count;
    uint32_t x = exists ? in[i] : 0;
    if (residual != nullptr && exists) {
      x = __float_as_uint(__fadd_rn(__uint_as_float(x), __uint_as_float(residual[i])));
    }
    const uint32_t magnitude = x & kMagnitude;
    const bool finite = magnitude < kInf;
    const bool nan = magnitude > kInf;
    const bool votes = magnitude != 0 || !rule.abstains;
    const uint32_t sign = magnitude != 0 ? x : rule.random.upper(static_cast<uint32_t>(position) + i);
    const bool minus = (sign & kSignBit) != 0;
    const uint32_t word_plus = ballot(exists && finite && votes && !minus);
    const uint32_t word_minus = ballot(exists && finite && votes && minus);
    const uint32_t word_none = ballot(exists && finite && !votes);
    const uint32_t word_low = ballot(exists && !finite && (nan || !minus));
    const uint32_t word_high = ballot(exists && !finite && (nan || minus));
    some |= (word_plus | word_minus) != 0;
    any_none |= word_none != 0;
    special |= (word_low | word_high) != 0;
    if (lane() == k) {
      plus = word_plus;
      none = word_none;
      low = word_low;
      high = word_high;
    }
    if (residual != nullptr && exists) {
      const float sent = minus ? -rule.scale : rule.scale;
      residual[i] = finite ? __float_as_uint(__fsub_rn(__uint_as_float(x), sent)) : 0;
    }
  }
  const uint32_t head = (some ? 1U : 0U) | (some && any_none ? kSingleBit : 0U) | (special ? kSpecialBit : 0U);
  if (lane() < kRecordWords) {
    const uint32_t planes = planes_of(head);
    if (planes != 0) words[lane()] = planes == 2 ? none : plus;
    if (planes == 2) words[kRecordWords + lane()] = plus;
    if (special) {
      words[planes * kRecordWords + lane()] = low;
      words[(planes + 1) * kRecordWords + lane()] = high;
    }
  }
  return head;
}

// Returns byte i of a record.
__device__ inline uint8_t byte_of(uint32_t head, uint32_t count, const uint32_t* words, uint32_t i) {
  if (i < kHeadBytes) return static_cast<uint8_t>(head >> 8 * i);
  const uint32_t place = i - kHeadBytes, each = plane_bytes(count);
  const uint32_t byte = place % each;
  return static_cast<uint8_t>(words[place / each * kRecordWords + byte / 4] >> byte % 4 * 8);
}

struct EncodeMemory {
  uint32_t words[kWarps][kWarpRecords][kMostPlanes * kRecordWords];
  uint32_t bytes[kWarps];
  uint64_t number;  // of the block
  uint64_t at;      // where the block begins
};

// Encodes the votes of a rank for `floats` floats, the first of which is at `position` of the whole tensor. The grid
// has a thread block of kThreads threads for each block of floats. abstains: 1 for signsgd,ternary, else 0. seed: that
// of the rank's own random numbers. `residual` is null, or has those of signsgd,ef, which are added and replaced; then
// a vote stands for `scale`. `out`, `states`: as in fixed.cu.
extern "C" __global__ void __launch_bounds__(kThreads)
    gradlane_votes_encode(const uint32_t* in, uint32_t* residual, uint64_t floats, uint64_t position, uint32_t abstains,
                          uint64_t seed, float scale, uint8_t* out, uint64_t* states) {
  GRADLANE_SHARED(EncodeMemory, memory);
  if (threadIdx.x == 0) memory.number = atomicAdd(states, uint64_t{1});
  __syncthreads();
  const uint64_t number = memory.number;
  const uint32_t in_block = floats_in_block(floats, number);
  const Rule rule{abstains != 0, random_of(seed), scale};
  uint32_t heads[kWarpRecords], counts[kWarpRecords], bytes = 0;
  GRADLANE_UNROLL(kWarpRecords)
  for (uint32_t r = 0; r < kWarpRecords; ++r) {
    const uint32_t skipped = (warp() * kWarpRecords + r) * kRecordFloats;
    const uint64_t first = number * kBlockFloats + skipped;
    counts[r] = skipped < in_block ? smaller(in_block - skipped, kRecordFloats) : 0;
    heads[r] = 0;
    if (counts[r] == 0) continue;
    heads[r] = put_votes(rule, in + first, residual == nullptr ? nullptr : residual + first, position + first,
                         counts[r], memory.words[warp()][r]);
    bytes += bytes_of(heads[r], counts[r]);
  }
  if (lane() == 0) memory.bytes[warp()] = bytes;
  __syncthreads();

  const Sums sums = sums_over(memory.bytes);
  if (warp() == 0) {
    const uint64_t at = place_block(out, states, number, sums.all);
    if (lane() == 0) memory.at = at;
  }
  __syncthreads();

  uint8_t* record = out + memory.at + sums.before;
  GRADLANE_UNROLL(kWarpRecords)
  for (uint32_t r = 0; r < kWarpRecords; ++r) {
    const uint32_t length = counts[r] == 0 ? 0 : bytes_of(heads[r], counts[r]);
    for (uint32_t i = lane(); i < length; i += kWarpLanes) {
      record[i] = byte_of(heads[r], counts[r], memory.words[warp()][r], i);
    }
    record += length;
  }
}

// ---- Decoding

struct DecodeMemory {
  uint32_t head[kBlockRecords];
  uint32_t at[kBlockRecords];
  uint32_t records;  // number of records above; 0: the block is malformed
  uint32_t next;     // byte after them
};

// Finds the records of a block from `first` on, at most kBlockRecords of them. One thread calls this.
__device__ inline void find_records(const uint8_t* block, uint32_t bytes, uint32_t floats, uint32_t first, uint32_t at,
                                    DecodeMemory& memory) {
  memory.records = 0;
  uint32_t found = 0;
  for (; found < kBlockRecords && first < floats; ++found) {
    if (bytes - at < kHeadBytes) return;
    const uint32_t head = block[at] | static_cast<uint32_t>(block[at + 1]) << 8;
    const uint32_t count = smaller(floats - first, kRecordFloats);
    if ((head & kRangeBits) > kMostVotes || (head & kUnusedBits) != 0 || bytes - at < bytes_of(head, count)) return;
    memory.head[found] = head;
    memory.at[found] = at + kHeadBytes;
    at += bytes_of(head, count);
    first += count;
  }
  memory.next = at;
  memory.records = found;
}

// Returns the value of float i, less than `count`, of a record with this head and these planes.
__device__ inline uint32_t value_of(uint32_t head, const uint8_t* planes, uint32_t count, float scale, uint32_t i) {
  const uint32_t each = plane_bytes(count), number = planes_of(head);
  const auto bit = [&](uint32_t plane) { return static_cast<uint32_t>(planes[plane * each + i / 8] >> i % 8 & 1); };
  if ((head & kSpecialBit) != 0) {
    const uint32_t code = bit(number) | bit(number + 1) << 1;
    if (code != 0) return code == 3 ? kCanonicalNan : code == 1 ? kInf : kInf | kSignBit;
  }
  if ((head & kRangeBits) == 0) return kSignBit;  // -0, as on the CPU
  uint32_t c = 0;
  for (uint32_t j = 0; j < number; ++j) c |= bit(j) << j;
  const int32_t range = static_cast<int32_t>(head & kRangeBits);
  const int32_t value = static_cast<int32_t>((head & kSingleBit) != 0 ? c : 2 * c) - range;
  const int32_t most = static_cast<int32_t>(kMostVotes);
  return __float_as_uint(__fmul_rn(static_cast<float>(value < most ? value : most), scale));
}

// Decodes a block. All threads of the thread block call this. Sets *fault to 1 if the block is malformed; the content
// of `out` is then unspecified.
__device__ inline void decode_block(float scale, const uint8_t* block, uint32_t bytes, uint32_t floats, uint32_t* out,
                                    uint32_t* fault) {
  GRADLANE_SHARED(DecodeMemory, memory);
  uint32_t at = 0;
  for (uint32_t first = 0; first < floats; first += kBlockFloats) {
    if (threadIdx.x == 0) find_records(block, bytes, floats, first, at, memory);
    __syncthreads();
    const uint32_t records = memory.records;
    if (records == 0) {
      if (threadIdx.x == 0) *fault = 1;
      return;
    }
    at = memory.next;
    for (uint32_t r = warp(); r < records; r += kWarps) {
      const uint32_t begin = first + r * kRecordFloats;
      const uint32_t count = smaller(floats - begin, kRecordFloats);
      for (uint32_t i = lane(); i < count; i += kWarpLanes) {
        out[begin + i] = value_of(memory.head[r], block + memory.at[r], count, scale, i);
      }
    }
    __syncthreads();
  }
  if (at != bytes && threadIdx.x == 0) *fault = 1;
}

// Decode an encoded tensor, and runs, as the kernels of fixed.cu do. A vote stands for `scale`. Here `encoded` and
// `arena` may end anywhere.
extern "C" __global__ void __launch_bounds__(kThreads)
    gradlane_votes_decode(const uint8_t* encoded, uint64_t bytes, uint64_t floats, float scale, uint32_t* out,
                          uint32_t* fault) {
  const auto [valid, run] = run_of_tensor(encoded, bytes, floats, fault);
  if (valid) decode_block(scale, encoded + run.at, run.bytes, run.floats, out + run.first, fault);
}

extern "C" __global__ void __launch_bounds__(kThreads)
    gradlane_votes_decode_runs(const Run* runs, const uint8_t* arena, uint64_t bytes, uint64_t floats, float scale,
                               uint32_t* out, uint32_t* fault) {
  const auto [valid, run] = checked_run(runs, bytes, floats, fault);
  if (valid) decode_block(scale, arena + run.at, run.bytes, run.floats, out + run.first, fault);
}

}  // namespace gradlane::gpu::votes
