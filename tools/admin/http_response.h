// http_response.h - what comes back of a GET, of HTTP/1.0 and 1.1 just as much as that takes (RFC 9112; pure)
#pragma once

#include <cstddef>
#include <optional>
#include <string_view>

namespace gradlane {

inline constexpr size_t kMostHttpHeader = 8192;  // of the status line and the fields

struct HttpResponse {
  unsigned status = 0;           // 0: this is no response
  size_t body = 0;               // where it begins
  std::optional<size_t> length;  // of the body; none: until the connection ends
};

// None: the header has not ended, and what there is may be the beginning of one. `may_grow`: more may come. What came
// in chunks, which nobody sends to whoever asks by HTTP/1.0, is no response.
[[nodiscard]] std::optional<HttpResponse> parse_http_response(std::string_view so_far, bool may_grow);

}  // namespace gradlane
