// codec_table.h - the table of codecs: a codec's row has all that is known about it (codec.h finds codecs)
//
// Other code never tests for a codec's name or id: it reads the property that it needs from the row.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "compress/isa.h"
#include "compress/kernels.h"

namespace gradlane {

// The kernels of a codec, in the order of kIsas. If an entry is null, the nearest entry before it is used. The first
// entry, the scalar kernels, is never null.
using CodecKernels = std::array<const CodecOps*, kIsas.size()>;

// The number format of codecs whose blocks are arrays.
enum class FloatForm : uint8_t { kNone, kFp32, kBf16, kFp16 };

// Bound of the error of v = decode(encode(f)): |v - f| <= relative |f| + absolute + of_largest L, unless f rounds to
// Inf. L is the largest finite magnitude of all that ranks contribute to the operation. Codecs with a scale per chunk
// take L of the chunk.
struct CodecError {
  double relative = 0;
  double absolute = 0;
  double of_largest = 0;
  bool bounded = true;  // false: the error has no such bound
};

// Range of BITS in the name "WORD:adaptive:BITS" of adaptive codecs: the bits below a tensor's magnitude.
inline constexpr unsigned kMinAutoBits = 1;
inline constexpr unsigned kMaxAutoBits = 12;

struct BlockSize {
  size_t floats;
  size_t bytes;
};

inline constexpr unsigned kMostStates = 2;
inline constexpr uint32_t kRateOfAll = 1'000'000;

// A number in a codec's name, other than B and the rate.
struct NumericParameter {
  // Place in the name: ":" right after the word, or "/" after B. Any other text is the name in an option "NAME=number".
  // Null: the codec has no such number.
  const char* place = nullptr;
  uint16_t least = 0;
  uint16_t most = 0;
  uint16_t usual = 0;         // value if the name has none; canonical names leave it out
  uint16_t per_one = 1;       // stored value of 1: 100 for numbers with two decimals
  bool power_of_two = false;  // only powers of two are allowed
};

// The rule by which ranks make one number of the numbers that they offer before an operation.
enum class Agreement : uint8_t { kNone, kGreatest, kMean };

// The element types that a codec serves. Other elements travel uncompressed.
enum class Serves : uint8_t { kFloat32, kUpTo32Bits, kAllFloats };

// The layout of blocks.
enum class Form : uint8_t { kArray, kPacked, kTagged, kLattice, kVotes, kSparse, kChunks };

struct CodecRow {
  // ---- Names
  CodecId id;           // number in packet headers
  const char* word;     // the name up to the colon
  const char* usage;    // how to write the whole name
  const char* example;  // a complete name
  const char* promise;  // the guarantee in a few words

  // ---- Kernels, and their parameters
  CodecKernels kernels;
  CodecParams (*params)(const CodecArguments&) = nullptr;  // null: only the arguments

  // ---- Parameter: B, and an option, a word that may follow after a comma
  unsigned min_bits = 0;
  unsigned max_bits = 0;         // 0: no parameter
  const char* option = nullptr;  // null: none
  CodecKernels option_kernels = {};
  const char* prefix = "";             // text before B: "rel="
  const char* variant = nullptr;       // word after a comma that distinguishes rows of the same `word`
  bool has_rate = false;               // a rate takes the place of B
  bool takes_lattice = false;          // "+fixed:b" may follow
  NumericParameter extra = {};         // number that is kept in arguments.extra
  NumericParameter second_extra = {};  // number that is kept in arguments.bits, for codecs without B

  // ---- Preparation of an operation, before anything is encoded
  unsigned passes = 0;                     // number of times that CodecOps::scan goes over a contribution
  Agreement agreement = Agreement::kNone;  // how offers of all ranks combine
  // Returns the offer of this rank, which is finite and not negative.
  float (*offer)(const CodecParams& params, const TensorScan& scan) = nullptr;
  // Sets parameters of one operation after each pass. `agreed` is what the ranks agreed on, in the call after the last
  // pass; else 0.
  void (*finish_scan)(CodecParams& params, TensorScan& scan, float agreed) = nullptr;

  // ---- Layout. The functions return bytes of a block of `floats` floats
  //
  // Granule: runs are cut at multiples of this number of floats, 1 or a power of two from kGroupFloats to kMaxGranule.
  // 0: the first NumericParameter is the granule.
  size_t granule = 1;
  size_t width = 0;                                                     // bytes per float; 0: they depend on the values
  size_t (*max_bytes)(const CodecArguments&, size_t floats) = nullptr;  // upper bound
  size_t (*least_bytes)(const CodecArguments&, size_t floats) = nullptr;  // lower bound
  // Joins blocks: see Codec::join(). Null: two adjacent blocks are one block already.
  size_t (*join)(uint8_t* block, BlockSize first, BlockSize second) noexcept = nullptr;

  // ---- Error of one contribution
  CodecError (*error)(const CodecArguments&) = nullptr;  // null: no error, all bits arrive

  // ---- Capabilities
  // Least B with which the codec has error feedback. With a smaller B, residuals would grow forever.
  unsigned feedback_from = 0;
  FloatForm form = FloatForm::kNone;
  Form layout = Form::kArray;
  Serves serves = Serves::kFloat32;
  bool feedback = false;  // has error feedback
  unsigned states = 1;    // state arrays of codecs with feedback, 1 to kMostStates, each as long as the data
  // Whether blocks can be added. If not, a rank encodes its own data once, and an owner encodes the sum once.
  bool is_additive = true;
  // Whether owners add contributions without rounding, and round the sum once. Such a codec need not be additive, and
  // exact_sum() adds for it, not CodecOps.
  bool rounds_once = false;
  bool exact_sums = false;  // sums do not depend on the order of ranks (while in range), for all arguments
  bool unbiased = false;    // the expected value of a decoded float is the input, so errors average out
  bool adaptive = false;    // trainers may choose B for each step (AdaptiveBound, "WORD:adaptive")
  // allowed in `mode: accelerator`: the error of each float is bounded, and blocks are shorter than the floats
  bool accelerator = false;
  bool engine = false;      // `gradlane bench codec` models a hardware engine for it
  const char* source = "";  // the paper

  // ---- Elements
  FloatForm elements = FloatForm::kFp32;  // format of the elements that are encoded
  // The rows of this codec for bf16 and fp16, which the table does not list. Null: they do not go through this codec.
  const CodecRow* bf16 = nullptr;
  const CodecRow* fp16 = nullptr;

  [[nodiscard]] constexpr bool exact() const noexcept { return error == nullptr; }
};

// Returns all rows. The first one is exact.
[[nodiscard]] std::span<const CodecRow> codec_table() noexcept;

}  // namespace gradlane
