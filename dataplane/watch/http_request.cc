// http_request.cc - what a scraper asks, of HTTP/1.0 and 1.1 just as much as that takes (pure)
#include "dataplane/watch/http_request.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/parse.h"

namespace gradlane {
namespace {

// ---- Parts of texts

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }

bool is_token(std::string_view text) {
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

// Up to the next separator; it and what is before go from `text`.
std::string_view take(std::string_view& text, char separator) {
  const size_t end = std::min(text.find(separator), text.size());
  const std::string_view part = text.substr(0, end);
  text.remove_prefix(std::min(end + 1, text.size()));
  return part;
}

// Lines end in CR LF; LF alone is understood (RFC 9112, 2.2).
std::string_view take_line(std::string_view& text) {
  std::string_view line = take(text, '\n');
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

// Where the empty line has ended; none: there is none yet.
std::optional<size_t> end_of_header(std::string_view text) {
  for (size_t at = text.find('\n'); at != std::string_view::npos; at = text.find('\n', at + 1)) {
    const std::string_view rest = text.substr(at + 1, 2);
    if (rest.starts_with('\n')) return at + 2;
    if (rest == "\r\n") return at + 3;
  }
  return std::nullopt;
}

// ---- Accept (RFC 9110, 12.5.1)

constexpr std::string_view kOpenMetricsType = "application/openmetrics-text";
constexpr std::string_view kTextType = "text/plain";

// What a header's lines want, 0 to 1 for each format.
struct Wishes {
  double open_metrics = 0;
  double text = 0;
};

// "text/plain;version=0.0.4;q=0.5"
void add_wish(std::string_view range, Wishes& wishes) {
  const std::string_view type = trimmed(take(range, ';'));
  const bool open_metrics = same_word(type, kOpenMetricsType);
  const bool text = same_word(type, kTextType) || type == "text/*" || type == "*/*";
  bool ours = open_metrics || text;
  double quality = 1;
  while (!range.empty()) {
    std::string_view parameter = take(range, ';');
    const std::string_view name = trimmed(take(parameter, '='));
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

// "/metrics?x=y", "http://host:9400/metrics"
std::string_view path_of(std::string_view target) {
  static constexpr std::string_view kScheme = "http://";
  if (target.size() >= kScheme.size() && same_word(target.substr(0, kScheme.size()), kScheme)) {
    target.remove_prefix(std::min(target.find('/', kScheme.size()), target.size()));
  }
  return target.substr(0, target.find('?'));
}

unsigned status_of(std::string_view method, std::string_view target) {
  if (path_of(target) != "/metrics") return 404;
  return method == "GET" || method == "HEAD" ? 200 : 405;
}

// False: it is none.
bool read_field(std::string_view line, unsigned& hosts, Wishes& wishes) {
  if (line.find(':') == std::string_view::npos) return false;
  const std::string_view name = take(line, ':');
  if (!is_token(name)) return false;  // nor folded lines, which nobody sends any more
  if (!std::ranges::all_of(line, [](char c) { return c == '\t' || static_cast<unsigned char>(c) >= ' '; }))
    return false;
  if (same_word(name, "host")) ++hosts;
  if (!same_word(name, "accept")) return true;
  while (!line.empty()) add_wish(take(line, ','), wishes);
  return true;
}

HttpRequest parse_header(std::string_view header) {
  HttpRequest request;
  std::string_view line = take_line(header);
  const std::string_view method = take(line, ' ');
  const std::string_view target = take(line, ' ');
  const std::string_view version = line;
  const bool shown = !target.empty() && std::ranges::all_of(target, [](char c) { return c > ' ' && c < 0x7f; });
  if (!is_token(method) || !shown || !version.starts_with("HTTP/")) return request;
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
  request.status = status_of(method, target);
  request.with_body = method != "HEAD";
  request.open_metrics = wishes.open_metrics > 0 && wishes.open_metrics >= wishes.text;
  return request;
}

// ---- Responses

struct Error {
  unsigned status;
  const char* phrase;
  const char* text;
};
constexpr Error kErrors[] = {
    {400, "Bad Request", "this is no request of HTTP/1.1"},
    {404, "Not Found", "there is /metrics, and nothing else"},
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
