// kernels.h - what codec.h and the kernels of every instruction set agree on; call codecs through codec.h
//
// Included by translation units of every ISA: plain data and nothing else, so that no function compiled for one
// instruction set can be picked by the linker for another.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gradlane {

// Values travel in packet headers.
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
};
inline constexpr size_t kCodecIds = static_cast<size_t>(CodecId::kDeflate) + 1;

// In packet headers, of what goes through no codec: bytes as they are, whatever their type.
inline constexpr CodecId kNoCodec = CodecId::kRaw;

// In the parameter byte: the option of the codec is on (`inceptionn`: truncate).
inline constexpr uint8_t kOptionBit = 0x80;

enum class [[nodiscard]] Status : uint8_t{
    kOk,
    kShort,      // the block ends before what its tags and escapes announce (or before its tags)
    kLong,       // bytes are left over behind the last float
    kBadTail,    // tags, or an escape, announce floats behind the last one
    kBadEscape,  // a group is longer than one can be, or not what its head says
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

// Blocks come in groups of 32 floats, but for those that are arrays.
inline constexpr size_t kGroupFloats = 32;
// Of a group of a tagged block, whose tags are one 64-bit word. (Those of bit planes are in planes.h.)
inline constexpr size_t kTagBytes = 8;
// A block that is cut to fit its output is at most this long, in bytes (jumbo frames have 9216).
inline constexpr size_t kMaxPacket = 16384;

// No codec cuts runs more coarsely.
inline constexpr size_t kMaxGranule = 1024;

// What blocks of all codecs keep to: bytes of a block of kGroupFloats floats.
inline constexpr size_t kLongestGroup = kTagBytes + kGroupFloats * 4;

// What a codec's name says behind its word, as it travels in an operation's descriptor: eight bytes, little-endian.
// Which of them a codec has is in its row (codec_table.h); the others are 0.
struct CodecArguments {
  uint8_t bits = 0;        // B, with kOptionBit where the option is on; or the second Extra
  uint8_t value_bits = 0;  // of "+fixed:b": b
  uint16_t extra = 0;      // the first Extra
  uint32_t rate = 0;       // elements selected of a million
  bool operator==(const CodecArguments&) const = default;
};
static_assert(sizeof(CodecArguments) == 8);

// Everything a kernel needs to know of its codec. Computed once at look-up; what is below the line for each operation,
// by Codec::settle() and its like.
struct CodecParams {
  uint32_t bits = 0;        // b: error at most 2^-b per contribution
  uint32_t split = 0;       // inceptionn: h = b/2, magnitudes below 2^-h have the 8-bit class
  float step = 0;           // s, the finest step: fixed 2^(1-b), inceptionn 2^-15
  float steps_per_one = 0;  // 1 / s
  float magic = 0;          // 1.5 * 2^23 * s; adding it leaves the nearest-even multiple of s in the low bits
  float exact = 0;          // 2^23 * s; from this magnitude on every float is a multiple of s
  CodecArguments arguments;

  // ---- Of one operation.
  float threshold = 0;  // sparse: magnitudes from here on are selected
  float gain = 1;       // contributions are multiplied by it first
  float scale = 1;      // agreed by all ranks: a power of two
  uint64_t from = 0;    // a run of positions, [from, until), that a selection treats apart
  uint64_t until = 0;
  uint64_t seed = 0;      // of random numbers that are alike on all ranks
  uint64_t own_seed = 0;  // of those that are this rank's
  bool result = false;    // encodes results and not contributions
};

// What a pass over a contribution finds out before any of it is encoded: CodecOps::look. 19 KiB.
struct Look {
  static constexpr size_t kCounts = 4096;
  static constexpr size_t kMarks = 64;

  // What the counts from that of `bin` on were when so many values had been looked at.
  struct Mark {
    uint64_t values;
    uint32_t bin;
    uint32_t counts[8];
  };

  unsigned pass = 0;              // of row().passes
  uint64_t values = 0;            // looked at so far in this pass, or skipped
  uint64_t next = 0;              // the first value of this pass that matters, of those to come: others may be skipped
  uint64_t finite = 0;            // of these
  uint64_t chosen = 0;            // for the codec's own counting
  float largest = 0;              // magnitude, of finite ones
  double magnitude = 0;           // sums over finite ones: of magnitudes,
  double square = 0;              //   of squares
  uint32_t counts[kCounts] = {};  // for a histogram
  size_t marks = 0;               // of it as it grew, in order
  Mark mark[kMarks];
};

// A run of this rank's own elements. What has no memory of earlier ones leaves the states null.
struct LookJob {
  const float* in;
  const float* residual;  // the codec's first state array
  const float* second;    // and its second one
  size_t floats;
  uint64_t position;  // of the first one in the whole tensor
};

struct EncodeJob {
  const float* in;
  float* residual;  // null: no error feedback
  size_t floats;
  uint8_t* out;
  size_t room;            // bytes at out
  uint64_t position = 0;  // of in[0] in the whole tensor
  float* second = nullptr;
};

struct HopJob {
  const uint8_t* block;
  size_t block_bytes;
  const float* local;
  float* residual;  // null: no error feedback
  size_t floats;    // of the block, and of local and residual
  size_t first;     // a multiple of the granule
  uint8_t* out;
  size_t room;
  uint64_t position = 0;  // of local[0] in the whole tensor
  float* second = nullptr;
};

// The functions of one codec in one instruction set. Contracts are in codec.h.
struct CodecOps {
  EncodeResult (*encode)(const CodecParams&, const EncodeJob&) noexcept;
  Status (*validate)(const CodecParams&, const uint8_t* block, size_t bytes, size_t floats) noexcept;
  Status (*decode)(const CodecParams&, const uint8_t* block, size_t bytes, float* out, size_t floats) noexcept;
  Status (*decode_add)(const CodecParams&, const uint8_t* block, size_t bytes, float* acc, size_t floats) noexcept;
  HopResult (*hop)(const CodecParams&, const HopJob&) noexcept;
  // Null where encode() serves: what it makes of sums is what it makes of contributions.
  EncodeResult (*represent)(const CodecParams&, const EncodeJob&) noexcept = nullptr;
  // Null: nothing need be known beforehand.
  void (*look)(const CodecParams&, Look&, const LookJob&) noexcept = nullptr;
  // Null: sums are the results.
  void (*finish)(const CodecParams&, float* sums, size_t floats, uint64_t position) noexcept = nullptr;
};

}  // namespace gradlane
