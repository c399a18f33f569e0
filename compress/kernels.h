// kernels.h - what codec.h and the kernels of every instruction set agree on; call codecs through codec.h
//
// Included by translation units of every ISA: plain data and nothing else, so that no function compiled for one
// instruction set can be picked by the linker for another.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gradlane {

// Values travel in packet headers.
enum class CodecId : uint8_t { kRaw = 0, kBf16 = 1, kFp16 = 2, kInceptionn = 3, kFixed = 4 };

// In packet headers, of what goes through no codec: bytes as they are, whatever their type.
inline constexpr CodecId kNoCodec = CodecId::kRaw;

// In the parameter byte: the option of the codec is on (`inceptionn`: truncate).
inline constexpr uint8_t kOptionBit = 0x80;

enum class [[nodiscard]] Status : uint8_t{
    kOk,
    kShort,      // the block ends before what its tags and escapes announce (or before its tags)
    kLong,       // bytes are left over behind the last float
    kBadTail,    // tags, or an escape, announce floats behind the last one
    kBadEscape,  // a group is longer than one can be
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

// What blocks of all codecs keep to: bytes of a block of kGroupFloats floats.
inline constexpr size_t kLongestGroup = kTagBytes + kGroupFloats * 4;

// Everything a kernel needs to know of its codec, computed once at look-up.
struct CodecParams {
  uint32_t bits = 0;        // b: error at most 2^-b per contribution
  uint32_t split = 0;       // inceptionn: h = b/2, magnitudes below 2^-h have the 8-bit class
  float step = 0;           // s, the finest step: fixed 2^(1-b), inceptionn 2^-15
  float steps_per_one = 0;  // 1 / s
  float magic = 0;          // 1.5 * 2^23 * s; adding it leaves the nearest-even multiple of s in the low bits
  float exact = 0;          // 2^23 * s; from this magnitude on every float is a multiple of s
};

struct EncodeJob {
  const float* in;
  float* residual;  // null: no error feedback
  size_t floats;
  uint8_t* out;
  size_t room;  // bytes at out
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
};

// The functions of one codec in one instruction set. Contracts are in codec.h.
struct CodecOps {
  EncodeResult (*encode)(const CodecParams&, const EncodeJob&) noexcept;
  Status (*validate)(const CodecParams&, const uint8_t* block, size_t bytes, size_t floats) noexcept;
  Status (*decode)(const CodecParams&, const uint8_t* block, size_t bytes, float* out, size_t floats) noexcept;
  Status (*decode_add)(const CodecParams&, const uint8_t* block, size_t bytes, float* acc, size_t floats) noexcept;
  HopResult (*hop)(const CodecParams&, const HopJob&) noexcept;
};

}  // namespace gradlane
