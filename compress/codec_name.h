// codec_name.h - the parser of codec names: the arguments after the word (codec.cc only; set-up)
//
//     word [":" value] ["/" number] {"," option} ["+fixed:" b]
//
// `value` is B (after the row's prefix), a rate ("1%", "0.01"), or the first NumericParameter.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "compress/codec_table.h"

namespace gradlane {

// A name split into its parts, which are views of it.
struct CodecText {
  std::string_view word;
  bool has_value = false;  // the name has a colon
  std::string_view value;
  bool has_number = false;  // the name has a slash
  std::string_view number;
  std::vector<std::string_view> options;
  bool has_lattice = false;  // the name has a plus sign
  std::string_view lattice;
};
[[nodiscard]] CodecText split_name(std::string_view name);

struct NameFault {
  std::string why;     // the reason; empty if there is no fault
  bool meant = false;  // the name can only mean this row
};
// Parses the arguments of `text`, whose word must be the row's.
[[nodiscard]] NameFault parse_arguments(const CodecRow& row, const CodecText& text, CodecArguments& arguments);

// Returns the number of letters to change, to insert and to remove (Levenshtein's distance).
[[nodiscard]] size_t edits_between(std::string_view one, std::string_view other);
// Returns whether a value is "adaptive" or "adaptive:6", with up to two wrong letters, or an old name of it. Only
// trainers know these names (AdaptiveBound).
[[nodiscard]] bool means_adaptive(std::string_view value);
// Returns "fixed:adaptive" for the row of `fixed`, which must be adaptive.
[[nodiscard]] std::string adaptive_name(const CodecRow& row);

// Returns whether a name of this row can have these arguments.
[[nodiscard]] bool allowed(const CodecRow& row, const CodecArguments& arguments) noexcept;

}  // namespace gradlane
