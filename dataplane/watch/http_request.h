// http_request.h - what scrapers and `gradlane top` ask, of HTTP/1.0 and 1.1 (RFC 9110, RFC 9112) just as much as that
// takes (pure)
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gradlane {

inline constexpr size_t kMostHttpRequest = 8192;  // of the request line and the header

enum class HttpDocument : uint8_t {
  kMetrics,      // /metrics, the text format
  kOpenMetrics,  // /metrics, OpenMetrics 1.0.0: it is accepted, and not less than the text format
  kStats,        // /stats
};
inline constexpr size_t kHttpDocuments = 3;

// What to answer with.
struct HttpRequest {
  unsigned status = 400;  // 200: the document; else an error
  bool with_body = true;  // HEAD: only its length is wanted
  HttpDocument document = HttpDocument::kMetrics;
};

// None: the header has not ended, and that is not an error yet. `may_grow`: more may come.
[[nodiscard]] std::optional<HttpRequest> parse_http_request(std::string_view so_far, bool may_grow);

// A whole response, after which the connection closes. `document`: of 200.
[[nodiscard]] std::string http_response(const HttpRequest& request, std::string_view type, std::string_view document);

}  // namespace gradlane
