// http_text.h - the common syntax of requests and responses of HTTP/1.x (RFC 9110, RFC 9112; pure)
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace gradlane {

[[nodiscard]] bool is_http_token(std::string_view text);
// Returns whether two words are equal apart from upper and lower case in `text`. `small` must be in lower case.
[[nodiscard]] bool same_word(std::string_view text, std::string_view small);
[[nodiscard]] std::string_view trimmed(std::string_view text);

// Removes the text up to the next separator from `text`, with the separator. Returns it without the separator.
[[nodiscard]] std::string_view take_part(std::string_view& text, char separator);
// Removes the next line from `text` and returns it. Lines end in CR LF; LF alone is accepted as well (RFC 9112, 2.2).
[[nodiscard]] std::string_view take_line(std::string_view& text);
// Returns the position after the empty line that ends the header, or nothing if there is no such line yet.
[[nodiscard]] std::optional<size_t> end_of_header(std::string_view text);

struct HttpField {
  std::string_view name;
  std::string_view value;  // value with any spaces around it
};
// Parses a line of a header. Returns nothing if the line is not a field. Folded fields, which are obsolete, do not
// count.
[[nodiscard]] std::optional<HttpField> parse_http_field(std::string_view line);

}  // namespace gradlane
