// http_text.cc - the common syntax of requests and responses of HTTP/1.x (pure)
#include "dataplane/watch/http_text.h"

#include <algorithm>

namespace gradlane {
namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

}  // namespace

bool is_http_token(std::string_view text) {
  static constexpr std::string_view kOthers = "!#$%&'*+-.^_`|~0123456789";
  return !text.empty() &&
         std::ranges::all_of(text, [](char c) { return is_letter(c) || kOthers.find(c) != std::string_view::npos; });
}

bool same_word(std::string_view text, std::string_view small) {
  return std::ranges::equal(text, small, [](char a, char b) { return (is_letter(a) ? (a | 0x20) : a) == b; });
}

std::string_view trimmed(std::string_view text) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t'; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

std::string_view take_part(std::string_view& text, char separator) {
  const size_t end = std::min(text.find(separator), text.size());
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return part;
}

std::string_view take_line(std::string_view& text) {
  std::string_view line = take_part(text, '\n');
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

std::optional<size_t> end_of_header(std::string_view text) {
  for (size_t at = text.find('\n'); at != std::string_view::npos; at = text.find('\n', at + 1)) {
    const std::string_view rest = text.substr(at + 1, 2);
    if (rest.starts_with('\n')) return at + 2;
    if (rest == "\r\n") return at + 3;
  }
  return std::nullopt;
}

std::optional<HttpField> parse_http_field(std::string_view line) {
  if (line.find(':') == std::string_view::npos) return std::nullopt;
  const std::string_view name = take_part(line, ':');
  const auto is_shown = [](char c) { return c == '\t' || static_cast<unsigned char>(c) >= ' '; };
  if (!is_http_token(name) || !std::ranges::all_of(line, is_shown)) return std::nullopt;
  return HttpField{name, line};
}

}  // namespace gradlane
