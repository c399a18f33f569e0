// codec_table.h - the table of codecs: all that there is to know of one is in its row (codec.h finds them)
//
// Nobody asks for a codec by its name or id: who needs to know something of it asks its row.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "compress/isa.h"
#include "compress/kernels.h"

namespace gradlane {

// The kernels of a codec, in the order of kIsas. Null: there are none, and those before serve, in the end the scalar
// ones, which each codec has.
using CodecKernels = std::array<const CodecOps*, kIsas.size()>;

// A format of numbers that a codec's blocks are arrays of.
enum class FloatForm : uint8_t { kNone, kFp32, kBf16, kFp16 };

// How far v = decode(encode(f)) may be from f: |v - f| <= relative |f| + absolute + of_largest L, unless f rounds to
// Inf. L is the largest finite magnitude of all that ranks contribute to the operation (of the chunk, where each has a
// scale of its own).
struct CodecError {
  double relative = 0;
  double absolute = 0;
  double of_largest = 0;
  bool bounded = true;  // else v says nothing of that kind
};

// Of adaptive codecs "WORD:adaptive:BITS": what BITS, the bits below a tensor's magnitude, may be.
inline constexpr unsigned kMinAutoBits = 1;
inline constexpr unsigned kMaxAutoBits = 12;

struct BlockSize {
  size_t floats;
  size_t bytes;
};

inline constexpr unsigned kMostStates = 2;
inline constexpr uint32_t kRateOfAll = 1'000'000;

// A number in a codec's name beside B and the rate.
struct Extra {
  // Where it stands: ":" first behind the word; "/" behind B; else its name in an option "NAME=number". Null: nowhere.
  const char* place = nullptr;
  uint16_t least = 0;
  uint16_t most = 0;
  uint16_t usual = 0;         // where the name does not say; names leave it out
  uint16_t per_one = 1;       // what is kept for 1: 100 for numbers with two decimals
  bool power_of_two = false;  // no others are allowed
};

// What all ranks make of the numbers that each of them offers before an operation.
enum class Agreement : uint8_t { kNone, kGreatest, kMean };

// How contributions and sums travel, for tables that people read.
enum class Form : uint8_t { kArray, kTagged, kLattice, kVotes, kSparse, kChunks };

struct CodecRow {
  // ---- Names
  CodecId id;           // in packet headers
  const char* word;     // the name up to the colon
  const char* usage;    // how to write the whole name
  const char* example;  // one such name
  const char* promise;  // in a few words

  // ---- Kernels, and what they are told
  CodecKernels kernels;
  CodecParams (*params)(const CodecArguments&) = nullptr;  // null: nothing but the arguments

  // ---- Parameter: B, and a word that may stand behind it and a comma
  unsigned min_bits = 0;
  unsigned max_bits = 0;         // 0: no parameter
  const char* option = nullptr;  // null: none
  CodecKernels option_kernels = {};
  const char* prefix = "";        // stands before B: "rel="
  const char* variant = nullptr;  // a word behind a comma that tells rows of the same `word` apart
  bool has_rate = false;          // a rate stands where B would
  bool takes_lattice = false;     // "+fixed:b" may follow
  Extra extra = {};               // arguments.extra
  Extra second_extra = {};        // arguments.bits, of codecs without B

  // ---- Operations: what must be known before anything is encoded
  unsigned passes = 0;                     // of CodecOps::look over a contribution
  Agreement agreement = Agreement::kNone;  // on offer()
  // What this rank offers; finite and not negative.
  float (*offer)(const CodecParams& params, const Look& look) = nullptr;
  // After each pass, and, with what has been agreed (else 0), after the last one: fills in what is of one operation.
  void (*settle)(CodecParams& params, Look& look, float agreed) = nullptr;

  // ---- Layout. The functions give bytes of a block of so many floats
  // Runs are cut at multiples of this many floats: 1, or a power of two from kGroupFloats to kMaxGranule. 0: of as many
  // as the first Extra says.
  size_t granule = 1;
  size_t width = 0;  // bytes per float, whatever they are; 0: it depends on them
  size_t (*max_bytes)(const CodecArguments&, size_t floats) = nullptr;    // none has more
  size_t (*least_bytes)(const CodecArguments&, size_t floats) = nullptr;  // none has fewer
  // Codec::join(); null: two blocks that stand side by side are one already.
  size_t (*join)(uint8_t* block, BlockSize first, BlockSize second) noexcept = nullptr;

  // ---- What it takes away from one contribution
  CodecError (*error)(const CodecArguments&) = nullptr;  // null: nothing, all bits arrive

  // ---- Capabilities
  // With a lesser B there is no `feedback`: residuals would grow for ever.
  unsigned feedback_from = 0;
  FloatForm form = FloatForm::kNone;
  Form layout = Form::kArray;
  bool feedback = false;     // takes residuals
  unsigned states = 1;       // 1 to kMostStates arrays of as many floats as the data, of those that do
  bool adds = true;          // else blocks are encoded once: by whom they are from, and, sums of them, by an owner
  bool exact_sums = false;   // adds without rounding whatever the arguments: see Codec::exact_sums()
  bool unbiased = false;     // on average, what arrives is what was given: the rest is noise, and nothing is lost
  bool adaptive = false;     // trainers may choose B from step to step (AdaptiveBound, "WORD:adaptive")
  bool accelerator = false;  // changes floats by a known amount and makes them smaller: for `mode: accelerator`
  bool engine = false;       // the hardware engine of `gradlane bench codec` is one for it
  const char* source = "";   // the paper

  [[nodiscard]] constexpr bool exact() const noexcept { return error == nullptr; }
};

// All of them; the first one is exact.
[[nodiscard]] std::span<const CodecRow> codec_table() noexcept;

}  // namespace gradlane
