// codec_name.h - what a codec's name says behind its word (codec.cc only; set-up)
//
//     word [":" value] ["/" number] {"," option} ["+fixed:" b]
//
// `value` is B, with the row's prefix before it, a rate ("1%", "0.01"), or the first Extra.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "compress/codec_table.h"

namespace gradlane {

// A name in its parts, which are parts of it.
struct CodecText {
  std::string_view word;
  bool has_value = false;  // a colon
  std::string_view value;
  bool has_number = false;  // a slash
  std::string_view number;
  std::vector<std::string_view> options;
  bool has_lattice = false;  // a plus
  std::string_view lattice;
};
[[nodiscard]] CodecText split_name(std::string_view name);

struct NameFault {
  std::string why;     // empty: none
  bool meant = false;  // the name can only mean this row
};
// `text` has the row's word.
[[nodiscard]] NameFault parse_arguments(const CodecRow& row, const CodecText& text, CodecArguments& arguments);

// Whether a name of this row can say that.
[[nodiscard]] bool allowed(const CodecRow& row, const CodecArguments& arguments) noexcept;

}  // namespace gradlane
