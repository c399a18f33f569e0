// codec_table.h - the table of codecs: all that there is to know of one is in its row (codec.h finds them)
//
// Nobody asks for a codec by its name or id: who needs to know something of it asks its row.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "compress/kernels.h"

namespace gradlane {

// The kernels of a codec, by instruction set. Null: there are none, and those before serve, in the end
// the scalar ones, which each codec has.
struct CodecKernels {
  const CodecOps* scalar = nullptr;
  const CodecOps* avx2 = nullptr;
  const CodecOps* avx512 = nullptr;
};

// A format of numbers that a codec's blocks are arrays of.
enum class FloatForm : uint8_t { kNone, kFp32, kBf16, kFp16 };

// How far v = decode(encode(f)) may be from f: |v - f| <= relative |f| + absolute, unless f rounds to Inf.
struct CodecError {
  double relative = 0;
  double absolute = 0;
};

// Of adaptive codecs "WORD:auto:BITS": what BITS, the bits below a tensor's magnitude, may be.
inline constexpr unsigned kMinAutoBits = 1;
inline constexpr unsigned kMaxAutoBits = 12;

struct BlockSize {
  size_t floats;
  size_t bytes;
};

struct CodecRow {
  // ---- Names
  CodecId id;           // in packet headers
  const char* word;     // the name up to the colon
  const char* usage;    // how to write the whole name
  const char* example;  // one such name
  const char* promise;  // in a few words

  // ---- Kernels, and what they are told
  CodecKernels kernels;
  CodecParams (*params)(unsigned bits) = nullptr;  // null: nothing

  // ---- Parameter: B, and a word that may stand behind it and a comma
  unsigned min_bits = 0;
  unsigned max_bits = 0;         // 0: no parameter
  const char* option = nullptr;  // null: none
  CodecKernels option_kernels = {};

  // ---- Layout. The functions give bytes of a block of so many floats
  size_t granule = 1;                              // runs are cut at multiples of this many floats: 1 or kGroupFloats
  size_t width = 0;                                // bytes per float, whatever they are; 0: it depends on them
  size_t (*max_bytes)(size_t floats) = nullptr;    // none has more
  size_t (*least_bytes)(size_t floats) = nullptr;  // none has fewer
  // Codec::join(); null: two blocks that stand side by side are one already.
  size_t (*join)(uint8_t* block, BlockSize first, BlockSize second) noexcept = nullptr;

  // ---- What it takes away from one contribution
  CodecError (*error)(unsigned bits) = nullptr;  // null: nothing, all bits arrive

  // ---- Capabilities
  FloatForm form = FloatForm::kNone;
  bool feedback = false;     // takes residuals
  bool exact_sums = false;   // adds without rounding: sums do not depend on the order of the ranks
  bool adaptive = false;     // trainers may choose B from step to step (AdaptiveBound, "WORD:auto")
  bool accelerator = false;  // changes floats by a known amount and makes them smaller: for `mode: accelerator`
  bool engine = false;       // the hardware engine of `gradlane bench codec` is one for it

  [[nodiscard]] constexpr bool exact() const noexcept { return error == nullptr; }
};

// All of them; the first one is exact.
[[nodiscard]] std::span<const CodecRow> codec_table() noexcept;

}  // namespace gradlane
