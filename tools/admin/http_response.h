// http_response.h - parser for the answer to a GET: as much of HTTP/1.0 and 1.1 as that needs (RFC 9112; pure)
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace gradlane {

inline constexpr size_t kMostHttpHeader = 8192;  // limit for the status line and the fields together

struct HttpResponse {
  unsigned status = 0;           // 0 if the text is no response
  size_t body = 0;               // offset of the body
  std::optional<size_t> length;  // bytes of the body; nullopt if the body ends when the peer closes the connection
};

// Parses the beginning of an answer. Returns nothing if the header is incomplete, and more bytes may complete it
// (`may_grow`). Returns status 0 for text that is no response. It also returns 0 for a chunked response, because no
// server sends one to a client of HTTP/1.0.
[[nodiscard]] std::optional<HttpResponse> parse_http_response(std::string_view so_far, bool may_grow);

}  // namespace gradlane
