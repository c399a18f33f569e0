// codec_table.cc - the table of codecs, made of the families in rows/, and rules for all rows (set-up only, except
// join())
#include "compress/codec_table.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "compress/codec.h"
#include "compress/layout.h"
#include "compress/rows/chunks.h"
#include "compress/rows/on_lattice.h"
#include "compress/rows/plain.h"
#include "compress/rows/sparse.h"
#include "compress/rows/votes.h"

namespace gradlane {
namespace {

template <size_t... kSizes>
constexpr auto joined(const CodecRow (&... families)[kSizes]) {
  std::array<CodecRow, (kSizes + ...)> all{};
  size_t count = 0;
  (([&] { count = static_cast<size_t>(std::ranges::copy(families, all.begin() + count).out - all.begin()); }()), ...);
  return all;
}

constexpr auto kRows = joined(kPlainRows, kLatticeRows, kVoteRows, kSparseRows, kChunkRows);

// ---- Rules for rows, checked by the compiler

// Returns whether a text fits into the GL_NAME bytes that clients have for it. They would get only a part of a longer
// one.
constexpr bool fits(std::string_view text) { return text.size() <= kLongestCodecName; }

constexpr bool complete(const CodecRow& row) {
  return static_cast<size_t>(row.id) < kCodecIds && row.kernels[0] != nullptr &&
         (row.option == nullptr || row.option_kernels[0] != nullptr) && row.max_bytes != nullptr &&
         row.least_bytes != nullptr && row.example != nullptr && row.max_bits < kOptionBit && fits(row.word) &&
         fits(row.usage) && fits(row.example) && (row.option == nullptr || row.max_bits > 0) && row.states > 0 &&
         row.states <= kMostStates;
}

// Checks the numbers in names. arguments.bits can hold B or the second NumericParameter, not both. The limits must be
// in order. If granule is 0, the first NumericParameter must be a power of two.
constexpr bool extras_fit(const CodecRow& row) {
  const bool second = row.second_extra.place != nullptr;
  if (second && (row.max_bits != 0 || row.second_extra.most > UINT8_MAX || row.extra.place == nullptr)) return false;
  for (const NumericParameter& extra : {row.extra, row.second_extra}) {
    if (extra.place == nullptr) continue;
    if (extra.least > extra.usual || extra.usual > extra.most || extra.per_one == 0) return false;
  }
  return row.granule != 0 || (row.extra.place != nullptr && row.extra.power_of_two);
}

// Checks that a row with an agreement makes an offer after at least one pass, and that a row with passes has
// finish_scan().
constexpr bool prepared(const CodecRow& row) {
  if ((row.agreement != Agreement::kNone) != (row.offer != nullptr)) return false;
  return (row.passes != 0) == (row.finish_scan != nullptr) && (row.offer == nullptr || row.passes != 0);
}

constexpr CodecArguments longest(const CodecRow& row) {
  return {.bits = static_cast<uint8_t>(row.max_bits), .value_bits = 0, .extra = row.extra.most, .rate = kRateOfAll};
}

constexpr bool laid_out(const CodecRow& row) {
  const CodecArguments arguments = longest(row);
  const size_t granule = row.granule != 0 ? row.granule : arguments.extra;
  if (granule != 1 && (granule < kGroupFloats || granule > kMaxGranule || (granule & (granule - 1)) != 0)) return false;
  for (size_t floats = granule; floats <= 4 * granule; floats += granule) {
    const size_t least = row.least_bytes(arguments, floats);
    const size_t most = row.max_bytes(arguments, floats);
    if (least > most || least == 0) return false;
    if (row.width != 0 && (least != floats * row.width || most != least)) return false;
    if (most > groups_of(floats) * kLongestGroup) return false;
  }
  return row.width != 0 || granule != 1;
}

// Checks that two rows differ: in id, in format, and in word, prefix of B or variant.
constexpr bool unlike(const CodecRow& row, const CodecRow& other) {
  const auto variant = [](const CodecRow& of) { return std::string_view(of.variant != nullptr ? of.variant : ""); };
  return row.id != other.id &&
         (std::string_view(row.word) != other.word || std::string_view(row.prefix) != other.prefix ||
          variant(row) != variant(other)) &&
         (row.form == FloatForm::kNone || row.form != other.form);
}

constexpr bool all_differ() {
  for (const CodecRow& row : kRows) {
    for (const CodecRow& other : kRows) {
      if (&row != &other && !unlike(row, other)) return false;
    }
  }
  return true;
}

static_assert(std::ranges::all_of(kRows, complete));
static_assert(std::ranges::all_of(kRows, extras_fit));
static_assert(std::ranges::all_of(kRows, prepared));
static_assert(std::ranges::all_of(kRows, laid_out));
static_assert(laid_out(kPackBf16Row) && laid_out(kPackFp16Row));
// kNoCodec stands for bytes that are not encoded.
static_assert(all_differ() && kRows[0].exact() && kRows[0].id == kNoCodec);
static_assert(std::ranges::none_of(kRows, [](const CodecRow& row) {
  return row.id == CodecId::kTrunc || row.id == CodecId::kDeflate;
}));

}  // namespace

std::span<const CodecRow> codec_table() noexcept { return kRows; }

}  // namespace gradlane
