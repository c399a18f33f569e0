// http_request.cc - HTTP requests of scrapers and `gradlane top`, and responses: only the needed parts of HTTP/1.0 and
// 1.1 (pure)
#include "dataplane/watch/http_request.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/parse.h"
#include "dataplane/watch/http_text.h"

namespace gradlane {
namespace {

// ---- Accept (RFC 9110, 12.5.1)

constexpr std::string_view kOpenMetricsType = "application/openmetrics-text";
constexpr std::string_view kTextType = "text/plain";

// The preference for each format in the lines of a header, 0 to 1.
struct Wishes {
  double open_metrics = 0;
  double text = 0;
};

// Adds a media range of an Accept line: "text/plain;version=0.0.4;q=0.5".
void add_wish(std::string_view range, Wishes& wishes) {
  const std::string_view type = trimmed(take_part(range, ';'));
  const bool open_metrics = same_word(type, kOpenMetricsType);
  const bool text = same_word(type, kTextType) || type == "text/*" || type == "*/*";
  bool ours = open_metrics || text;
  double quality = 1;
  while (!range.empty()) {
    std::string_view parameter = take_part(range, ';');
    const std::string_view name = trimmed(take_part(parameter, '='));
    std::string_view value = trimmed(parameter);
    if (value.size() >= 2 && value.starts_with('"') && value.ends_with('"')) value = value.substr(1, value.size() - 2);
    if (same_word(name, "version")) ours &= value == (open_metrics ? "1.0.0" : "0.0.4");
    if (same_word(name, "q")) quality = parse_real(value, 0, 1).value_or(0);
  }
  if (!ours) return;
  double& wish = open_metrics ? wishes.open_metrics : wishes.text;
  wish = std::max(wish, quality);
}

// ---- The header

// Returns the path "/metrics" of a target like "/metrics?x=y" or "http://host:9400/metrics".
std::string_view path_of(std::string_view target) {
  static constexpr std::string_view kScheme = "http://";
  if (target.size() >= kScheme.size() && same_word(target.substr(0, kScheme.size()), kScheme)) {
    target.remove_prefix(std::min(target.find('/', kScheme.size()), target.size()));
  }
  return target.substr(0, target.find('?'));
}

std::optional<HttpDocument> document_of(std::string_view path) {
  if (path == "/metrics") return HttpDocument::kMetrics;
  if (path == "/stats") return HttpDocument::kStats;
  return std::nullopt;
}

// Reads a line of the header. Returns false if the line is not a field.
bool read_field(std::string_view line, unsigned& hosts, Wishes& wishes) {
  const auto field = parse_http_field(line);
  if (!field) return false;
  if (same_word(field->name, "host")) ++hosts;
  if (!same_word(field->name, "accept")) return true;
  std::string_view ranges = field->value;
  while (!ranges.empty()) add_wish(take_part(ranges, ','), wishes);
  return true;
}

HttpRequest parse_header(std::string_view header) {
  HttpRequest request;
  std::string_view line = take_line(header);
  const std::string_view method = take_part(line, ' ');
  const std::string_view target = take_part(line, ' ');
  const std::string_view version = line;
  const bool shown = !target.empty() && std::ranges::all_of(target, [](char c) { return c > ' ' && c < 0x7f; });
  if (!is_http_token(method) || !shown || !version.starts_with("HTTP/")) return request;
  const bool newer = version != "HTTP/1.0";
  if (newer && version != "HTTP/1.1") {
    request.status = 505;
    return request;
  }
  unsigned hosts = 0;
  Wishes wishes;
  for (line = take_line(header); !line.empty(); line = take_line(header)) {
    if (!read_field(line, hosts, wishes)) return request;
  }
  if (hosts > 1 || (newer && hosts == 0)) return request;  // RFC 9112, 3.2
  request.with_body = method != "HEAD";
  const auto document = document_of(path_of(target));
  request.status = !document ? 404 : method == "GET" || method == "HEAD" ? 200 : 405;
  request.document = document.value_or(HttpDocument::kMetrics);
  const bool open_metrics = wishes.open_metrics > 0 && wishes.open_metrics >= wishes.text;
  if (open_metrics && request.document == HttpDocument::kMetrics) request.document = HttpDocument::kOpenMetrics;
  return request;
}

// ---- Responses

struct Error {
  unsigned status;
  const char* phrase;
  const char* text;
};
constexpr Error kErrors[] = {
    {400, "Bad Request", "this is not an HTTP/1.1 request"},
    {404, "Not Found", "only /metrics and /stats exist"},
    {405, "Method Not Allowed", "allowed: GET, HEAD"},
    {431, "Request Header Fields Too Large", "a request has at most 8192 bytes"},
    {505, "HTTP Version Not Supported", "supported: HTTP/1.0, HTTP/1.1"},
};
static_assert(kMostHttpRequest == 8192);

}  // namespace

std::optional<HttpRequest> parse_http_request(std::string_view so_far, bool may_grow) {
  const auto end = end_of_header(so_far.substr(0, kMostHttpRequest));
  if (end) return parse_header(so_far.substr(0, *end));
  if (so_far.size() > kMostHttpRequest) return HttpRequest{.status = 431};
  if (may_grow) return std::nullopt;
  return HttpRequest{};
}

std::string http_response(const HttpRequest& request, std::string_view type, std::string_view document) {
  const auto* const error = std::ranges::find(kErrors, request.status, &Error::status);
  const bool failed = error != std::end(kErrors);
  const std::string text = failed ? fmt::format("{}\n", error->text) : "";
  const std::string_view body = failed ? text : document;
  return fmt::format("HTTP/1.1 {} {}\r\n{}Content-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}",
                     request.status, failed ? error->phrase : "OK", request.status == 405 ? "Allow: GET, HEAD\r\n" : "",
                     failed ? "text/plain; charset=utf-8" : type, body.size(), request.with_body ? body : "");
}

}  // namespace gradlane
