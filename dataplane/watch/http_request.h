// http_request.h - what a scraper asks, of HTTP/1.0 and 1.1 (RFC 9110, RFC 9112) just as much as that takes (pure)
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace gradlane {

inline constexpr size_t kMostHttpRequest = 8192;  // of the request line and the header

// What to answer with.
struct HttpRequest {
  unsigned status = 400;      // 200: the metrics; else an error
  bool with_body = true;      // HEAD: only its length is wanted
  bool open_metrics = false;  // OpenMetrics 1.0.0 is accepted, and not less than the text format
};

// None: the header has not ended, and that is not an error yet. `may_grow`: more may come.
[[nodiscard]] std::optional<HttpRequest> parse_http_request(std::string_view so_far, bool may_grow);

// A whole response, after which the connection closes. `document`: of 200.
[[nodiscard]] std::string http_response(const HttpRequest& request, std::string_view type, std::string_view document);

}  // namespace gradlane
