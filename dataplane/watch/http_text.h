// http_text.h - what requests and responses of HTTP/1.x have in common (RFC 9110, RFC 9112; pure)
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace gradlane {

[[nodiscard]] bool is_http_token(std::string_view text);
// `small`: in small letters; those of `text` are any.
[[nodiscard]] bool same_word(std::string_view text, std::string_view small);
[[nodiscard]] std::string_view trimmed(std::string_view text);

// Up to the next separator; it and what is before go from `text`.
[[nodiscard]] std::string_view take_part(std::string_view& text, char separator);
// Lines end in CR LF; LF alone is understood (RFC 9112, 2.2).
[[nodiscard]] std::string_view take_line(std::string_view& text);
// Where the empty line has ended; none: there is none yet.
[[nodiscard]] std::optional<size_t> end_of_header(std::string_view text);

struct HttpField {
  std::string_view name;
  std::string_view value;  // spaces around it are still there
};
// None: the line is no field. Folded ones, which nobody sends any more, are none.
[[nodiscard]] std::optional<HttpField> parse_http_field(std::string_view line);

}  // namespace gradlane
