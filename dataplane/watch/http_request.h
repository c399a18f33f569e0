// http_request.h - HTTP requests of scrapers and `gradlane top`, and responses: only the needed parts of HTTP/1.0 and
// 1.1 (RFC 9110, RFC 9112; pure)
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace gradlane {

inline constexpr size_t kMostHttpRequest = 8192;  // bytes of the request line and the header

enum class HttpDocument : uint8_t {
  kMetrics,      // /metrics, the text format
  kOpenMetrics,  // /metrics, OpenMetrics 1.0.0, if the client accepts it at least as much as the text format
  kStats,        // /stats
};
inline constexpr size_t kHttpDocuments = 3;

// A parsed request, which says what to answer.
struct HttpRequest {
  unsigned status = 400;  // 200: send the document; otherwise the status of an error
  bool with_body = true;  // false for HEAD, which asks for the length only
  HttpDocument document = HttpDocument::kMetrics;
};

// Parses the bytes that have come so far. Returns nothing if the header is not complete, and there is no error yet.
// `may_grow` says whether more bytes may come.
[[nodiscard]] std::optional<HttpRequest> parse_http_request(std::string_view so_far, bool may_grow);

// Returns a complete response, after which the connection closes. `document` is only used with status 200.
[[nodiscard]] std::string http_response(const HttpRequest& request, std::string_view type, std::string_view document);

}  // namespace gradlane
