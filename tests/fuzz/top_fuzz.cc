// top_fuzz.cc - libFuzzer target: any bytes as the response of a remote node to `gradlane top`
//
// Aborts if bytes after a complete response change its meaning, or if a document is read whose size has no bounds. Also
// aborts if a page is larger than the screen, or has control characters. Input: an HTTP response. If it does not begin
// like one, it is a document. Documents are tested unchanged, and again with the ring's digest.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "tools/admin/bounded_json.h"
#include "tools/admin/http_response.h"
#include "tools/top/remote.h"
#include "tools/top/table.h"
#include "tools/top/view.h"

namespace gradlane::test {
namespace {

using nlohmann::json;

constexpr unsigned kNodes = 3;
constexpr size_t kWidth = 80;
constexpr size_t kHeight = 24;

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "top_fuzz: %s\n", what);
  std::abort();
}

bool same(const HttpResponse& a, const HttpResponse& b) {
  return a.status == b.status && a.body == b.body && a.length == b.length;
}

std::string_view body_of(std::string_view text) {
  const auto over = parse_http_response(text, false);
  if (!over) fail("no verdict on what is over");
  const auto so_far = parse_http_response(text, true);
  if (so_far && !same(*so_far, *over)) fail("two meanings");
  if (!so_far && over->status != 0) fail("half a response that is taken");
  if (over->status == 0) return {};
  if (over->body > text.size() || over->body > kMostHttpHeader) fail("a body beyond the end");
  const auto more = parse_http_response(std::string(text) + "\x01 more\r\n\r\n", true);
  if (!more || !same(*more, *over)) fail("what stands behind the header is read");
  return text.substr(over->body, over->length.value_or(std::string::npos));
}

const json& own_document() {
  static const json own = [] {
    const json link = {{"rank", 1}, {"up", true}, {"rtt_us", 100}, {"sent", 10}, {"bytes", 1000}, {"full_us", 5e5}};
    const json rank = {{"rank", 0}, {"lane", 0}, {"ring", "whole"}, {"links", {link}}};
    json table = json::array();
    for (unsigned i = 0; i < kNodes; ++i) table.push_back({{"node", i}, {"address", "::1"}, {"reach", "::1"}});
    return json{{"node", 0},     {"nodes", kNodes}, {"config_digest", "0x1"}, {"codec", "raw"}, {"mtu", 1500},
                {"attached", 1}, {"ranks", {rank}}, {"metrics", "[::]:9400"}, {"table", table}};
  }();
  return own;
}

void look_at(const json& document) {
  std::vector<TopLooks> ring(2);
  ring[0].now = ring[0].before = own_document();
  ring[1].now = ring[1].before = document;
  for (TopLooks& each : ring) each.seconds = each.exchanging = 1;
  std::vector<TopOther> others = {{2, "::1", "[::1]:9400", "nothing"}};
  if (const std::string why = stranger_text(document, own_document(), 1); !why.empty()) {
    if (why.size() > 100) fail("a long cause");
    ring.pop_back();
    others.push_back({1, "::1", "[::1]:9400", why});
  }
  const TopView view = top_view(ring, others);
  if (view.nodes.size() != kNodes) fail("nodes that are none");
  const std::vector<PageLine> page = page_of(view, {}, kWidth, kHeight);
  if (page.empty() || page.size() > kHeight) fail("no page");
  for (const PageLine& line : page) {
    if (line.text.size() > kWidth) fail("a line that is too long");
    for (const char c : line.text) {
      if (c < ' ' || c > '~') fail("what a terminal may obey");
    }
  }
  (void)page_of(view, {}, 0, 0);
  if (top_json(view).dump(2, ' ', false, json::error_handler_t::replace).empty()) fail("no JSON");
}

void execute(std::string_view input) {
  const std::vector<char> bytes(input.begin(), input.end());
  const std::string_view text(bytes.data(), bytes.size());
  std::string_view body = body_of(text);
  if (body.empty()) body = text;
  json document = parse_bounded(body);
  if (!document.is_null() && !is_bounded(body)) fail("a document without bounds");
  if (!document.is_object()) return;
  look_at(document);
  document["node"] = 1;
  document["nodes"] = kNodes;
  document["config_digest"] = "0x1";
  look_at(document);
  (void)remote_nodes(document);
}

}  // namespace
}  // namespace gradlane::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  gradlane::test::execute({reinterpret_cast<const char*>(data), size});
  return 0;
}
