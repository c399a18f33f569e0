// kernels.h - types that codec.h shares with the kernels of every instruction set; call codecs through codec.h
//
// Translation units of every ISA include this file. So it has plain data and nothing else: the linker cannot pick a
// function that was compiled for another instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gradlane {

// The codecs, by the numbers that packet headers carry.
enum class CodecId : uint8_t {
  kRaw = 0,
  kBf16 = 1,
  kFp16 = 2,
  kInceptionn = 3,
  kFixed = 4,
  // ---- On the lattice of `fixed`
  kStochastic = 5,
  kRelative = 6,
  kTernGrad = 7,
  kTbq = 8,
  // ---- Votes
  kSignSgd = 9,
  kSignSgdTernary = 10,
  kSignSgdFeedback = 11,
  // ---- Sparse
  kTopK = 12,
  kMsTopK = 13,
  kDgc = 14,
  kGradDrop = 15,
  // ---- Chunks with scales of their own
  kOneBit = 16,
  kQsgd = 17,
  kInt8 = 18,
  kFp8 = 19,
  // ---- Retired: no row has them (docs/codec-format.md, "Retired codecs")
  kTrunc = 20,
  kDeflate = 21,
  // ---- Tagged, as kInceptionn
  kInceptionnLiteral = 22,
  // ---- Lossless
  kPack = 23,
  kExact = 24,
};
inline constexpr size_t kCodecIds = static_cast<size_t>(CodecId::kExact) + 1;

// Id in packet headers of data that are not encoded: bytes of any type.
inline constexpr CodecId kNoCodec = CodecId::kRaw;

// Bit of the parameter byte: the codec's option is on (`inceptionn`: truncate).
inline constexpr uint8_t kOptionBit = 0x80;

enum class [[nodiscard]] Status : uint8_t{
    kOk,
    kShort,      // the block is shorter than its tags, or than the length that its tags and escapes announce
    kLong,       // bytes are left over after the last float
    kBadTail,    // tags, or an escape, announce floats after the last one
    kBadEscape,  // a group or a record announces an impossible length, or its head is invalid
};

struct EncodeResult {
  size_t floats;  // consumed
  size_t bytes;   // written
};

struct HopResult {
  Status status;
  size_t floats;  // consumed, from `first` on
  size_t bytes;   // written
};

// Floats of a group. Tagged blocks and bit planes consist of groups; records and chunks have a multiple of this number.
inline constexpr size_t kGroupFloats = 32;
// Bytes of the tags of one group in a tagged block: one 64-bit word. (planes.h has those of bit planes.)
inline constexpr size_t kTagBytes = 8;
// Longest block, in bytes, that an encoder writes when it cuts a run to fit its output (no packet is longer).
inline constexpr size_t kMaxPacket = 16384;

// Largest granule of any codec.
inline constexpr size_t kMaxGranule = 1024;

// Limit for blocks of all codecs: bytes per kGroupFloats floats.
inline constexpr size_t kLongestGroup = kTagBytes + kGroupFloats * 4;

// Arguments after the word in a codec's name, as the descriptor of an operation carries them: eight bytes,
// little-endian. The codec's row (codec_table.h) says which of them it has; the others are 0.
struct CodecArguments {
  uint8_t bits = 0;        // B, with kOptionBit if the option is on; or the second NumericParameter
  uint8_t value_bits = 0;  // b of "+fixed:b"
  uint16_t extra = 0;      // the first NumericParameter
  uint32_t rate = 0;       // elements that are selected, out of a million
  bool operator==(const CodecArguments&) const = default;
};
static_assert(sizeof(CodecArguments) == 8);

// Everything that a kernel needs to know about its codec, computed at look-up. The fields at the end change for each
// operation: Codec::end_pass(), finish_scan(), seed() and for_results() set them. If ranks agree on a step,
// finish_scan() also sets `step` and the three fields after it.
struct CodecParams {
  uint32_t bits = 0;        // b of the name; `fixed`: error at most 2^-b per contribution
  uint32_t split = 0;       // inceptionn: h = b/2, magnitudes below 2^-h have the 8-bit class
  float step = 0;           // s, the finest step: fixed 2^(1-b), inceptionn 2^-15
  float steps_per_one = 0;  // 1 / s
  float magic = 0;          // 1.5 * 2^23 * s; adding it leaves the nearest-even multiple of s in the low bits
  float exact = 0;          // 2^23 * s; from this magnitude on every float is a multiple of s
  CodecArguments arguments;

  // ---- Fields of one operation
  float threshold = 0;  // sparse codecs: least magnitude that is sent; terngrad: magnitude that floats are clipped to
  float gain = 1;       // dgc: factor of the gradient, less than 1 if it is clipped
  float scale = 1;      // signsgd,ef: power of two that all ranks agreed on; dgc: momentum
  uint64_t from = 0;    // mstopk: of the cut's bin, only elements at positions [from, until) are sent (codecs/mstopk.h)
  uint64_t until = 0;
  uint64_t seed = 0;      // seed of random numbers that are the same on all ranks
  uint64_t own_seed = 0;  // seed of this rank's own random numbers
  bool result = false;    // for_results() sets it; no kernel reads it
};

// The state and the findings of CodecOps::scan, which scans a contribution before any of it is encoded. 19 KiB.
struct TensorScan {
  static constexpr size_t kCounts = 4096;
  static constexpr size_t kMarks = 64;

  // Copy of the counts of bins `bin` to `bin` + 7, made after `values` values.
  struct Mark {
    uint64_t values;
    uint32_t bin;
    uint32_t counts[8];
  };

  unsigned pass = 0;              // number of passes that are complete, up to row().passes
  uint64_t values = 0;            // number of values of this pass that have been scanned or skipped
  uint64_t next = 0;              // next value of this pass that matters; values before it may be skipped
  uint64_t finite = 0;            // number of finite values that were scanned
  uint64_t chosen = 0;            // state of the codec's own counting (kit/select.h)
  float largest = 0;              // largest finite magnitude
  double magnitude = 0;           // sum of finite magnitudes
  double square = 0;              // sum of squares of finite values
  uint32_t counts[kCounts] = {};  // histogram of magnitudes
  size_t marks = 0;               // number of entries in `mark`, the earliest first
  Mark mark[kMarks];
};

// A piece of this rank's own elements to scan. The states are null if the operation keeps none.
struct ScanJob {
  const float* in;
  const float* residual;  // the codec's first state array
  const float* second;    // the codec's second state array
  size_t floats;
  uint64_t position;  // position of in[0] in the whole tensor
};

struct EncodeJob {
  const float* in;
  float* residual;  // null: no error feedback
  size_t floats;
  uint8_t* out;
  size_t room;            // bytes at out
  uint64_t position = 0;  // position of in[0] in the whole tensor
  float* second = nullptr;
};

struct HopJob {
  const uint8_t* block;
  size_t block_bytes;
  const float* local;
  float* residual;  // null: no error feedback
  size_t floats;    // number of values in the block, in local and in residual
  size_t first;     // a multiple of the granule
  uint8_t* out;
  size_t room;
  uint64_t position = 0;  // position of local[0] in the whole tensor
  float* second = nullptr;
};

// The functions of one codec in one instruction set. codec.h has their contracts.
struct CodecOps {
  EncodeResult (*encode)(const CodecParams&, const EncodeJob&) noexcept;
  Status (*validate)(const CodecParams&, const uint8_t* block, size_t bytes, size_t floats) noexcept;
  Status (*decode)(const CodecParams&, const uint8_t* block, size_t bytes, float* out, size_t floats) noexcept;
  Status (*decode_add)(const CodecParams&, const uint8_t* block, size_t bytes, float* acc, size_t floats) noexcept;
  HopResult (*hop)(const CodecParams&, const HopJob&) noexcept;
  // Encodes sums. Null if encode() does this too.
  EncodeResult (*encode_sum)(const CodecParams&, const EncodeJob&) noexcept = nullptr;
  // Null if the codec needs no scan.
  void (*scan)(const CodecParams&, TensorScan&, const ScanJob&) noexcept = nullptr;
  // Null if sums are the results.
  void (*finish)(const CodecParams&, float* sums, size_t floats, uint64_t position) noexcept = nullptr;
};

}  // namespace gradlane
