// bounded_json.cc - limits for JSON whose sender need not be a daemon (pure)
#include "tools/admin/bounded_json.h"

namespace gradlane {
namespace {

// Returns the position after the quotation mark that closes the string that begins at `at`; the end of the text if
// there is none.
size_t end_of_string(std::string_view text, size_t at) noexcept {
  for (++at; at < text.size() && text[at] != '"'; ++at) {
    if (text[at] == '\\') ++at;
  }
  return at < text.size() ? at + 1 : text.size();
}

}  // namespace

bool is_bounded(std::string_view text, const JsonBounds& bounds) noexcept {
  if (text.size() > bounds.bytes) return false;
  size_t values = 1;
  size_t depth = 0;
  for (size_t at = 0; at < text.size();) {
    const char c = text[at];
    if (c == '"') {
      const size_t end = end_of_string(text, at);
      if (end - at > bounds.text + 2) return false;
      at = end;
      continue;
    }
    if (c == '[' || c == '{') ++depth;
    if ((c == ']' || c == '}') && depth > 0) --depth;
    if (c == ',' || c == '[' || c == '{') ++values;
    if (depth > bounds.depth || values > bounds.values) return false;
    ++at;
  }
  return true;
}

nlohmann::json parse_bounded(std::string_view text, const JsonBounds& bounds) {
  if (!is_bounded(text, bounds)) return nullptr;
  nlohmann::json document = nlohmann::json::parse(text, nullptr, false);
  return document.is_discarded() ? nlohmann::json() : document;
}

}  // namespace gradlane
