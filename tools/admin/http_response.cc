// http_response.cc - parser for the answer to a GET: as much of HTTP/1.0 and 1.1 as that needs (pure)
#include "tools/admin/http_response.h"

#include <algorithm>

#include "base/parse.h"
#include "dataplane/watch/http_text.h"

namespace gradlane {
namespace {

constexpr std::string_view kVersion = "HTTP/1.";

// Returns the status of "HTTP/1.1 200 OK"; 0 if the line is no status line.
unsigned status_of(std::string_view line) {
  const std::string_view version = take_part(line, ' ');
  if (version != "HTTP/1.0" && version != "HTTP/1.1") return 0;
  const std::string_view code = take_part(line, ' ');
  return code.size() == 3 ? static_cast<unsigned>(parse_decimal(code, 100, 599).value_or(0)) : 0;
}

// Reads one field of the header. Returns false if it is malformed, or not allowed in this response.
bool read_field(std::string_view line, HttpResponse& response) {
  const auto field = parse_http_field(line);
  if (!field || same_word(field->name, "transfer-encoding")) return false;
  if (!same_word(field->name, "content-length")) return true;
  const auto length = parse_decimal(trimmed(field->value));
  if (!length || (response.length && response.length != length)) return false;
  response.length = *length;
  return true;
}

HttpResponse parse_header(std::string_view header) {
  HttpResponse response{.status = 0, .body = header.size(), .length = std::nullopt};
  const unsigned status = status_of(take_line(header));
  for (std::string_view line = take_line(header); !line.empty(); line = take_line(header)) {
    if (!read_field(line, response)) return {};
  }
  response.status = status;
  return response;
}

}  // namespace

std::optional<HttpResponse> parse_http_response(std::string_view so_far, bool may_grow) {
  const size_t common = std::min(so_far.size(), kVersion.size());
  if (so_far.substr(0, common) != kVersion.substr(0, common)) return HttpResponse{};
  const auto end = end_of_header(so_far.substr(0, kMostHttpHeader));
  if (end) return parse_header(so_far.substr(0, *end));
  if (so_far.size() >= kMostHttpHeader || !may_grow) return HttpResponse{};
  return std::nullopt;
}

}  // namespace gradlane
