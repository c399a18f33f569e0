// http_fuzz.cc - libFuzzer target: parses any bytes as a scraper's request
//
// Aborts if bytes after a complete request change its meaning, or if an incomplete request is accepted. Also aborts if
// a request gets no answer although no more bytes will come. Input: the request, in a heap block of its exact size.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "dataplane/watch/http_request.h"

namespace gradlane::test {
namespace {

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "http_fuzz: %s\n", what);
  std::abort();
}

bool same(const HttpRequest& a, const HttpRequest& b) {
  return a.status == b.status && a.with_body == b.with_body && a.document == b.document;
}

void execute(std::string_view input) {
  const std::vector<char> bytes(input.begin(), input.end());
  const std::string_view text(bytes.data(), bytes.size());
  const auto over = parse_http_request(text, false);
  if (!over) fail("no answer to a request that is over");
  const auto so_far = parse_http_request(text, true);
  if (so_far && !same(*so_far, *over)) fail("two meanings");
  if (!so_far && over->status != 400) fail("half a request that is taken");
  if (so_far && so_far->status == 200) {
    const std::string_view path = so_far->document == HttpDocument::kStats ? "/stats" : "/metrics";
    if (text.find(path) == std::string_view::npos) fail("a document that nobody asked for");
    const auto more = parse_http_request(std::string(text) + "\x01 more\r\n\r\n", true);
    if (!more || !same(*more, *so_far)) fail("what stands behind the header is read");
  }
  const std::string response = http_response(*over, "type", "document");
  if (!response.starts_with("HTTP/1.1 ") || response.find("\r\n\r\n") == std::string::npos) fail("no response");
}

}  // namespace
}  // namespace gradlane::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  gradlane::test::execute({reinterpret_cast<const char*>(data), size});
  return 0;
}
