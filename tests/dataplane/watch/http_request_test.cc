// http_request_test.cc - HTTP requests in, status and document out
#include "dataplane/watch/http_request.h"

#include <gtest/gtest.h>

namespace gradlane::test::http_request_test {
namespace {

// Returns the status; 0 if the request is not complete.
unsigned status(std::string_view request, bool may_grow = true) {
  const auto parsed = parse_http_request(request, may_grow);
  return parsed ? parsed->status : 0;
}

TEST(HttpRequest, Statuses) {
  struct Row {
    std::string_view request;
    unsigned status;
  };
  using std::string_view_literals::operator""sv;
  for (const Row& row : {
           Row{"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", 200},
           {"HEAD /metrics HTTP/1.1\r\nhost:a:9400\r\n\r\n", 200},
           {"GET /metrics HTTP/1.0\r\n\r\n", 200},
           {"GET /metrics?x=y HTTP/1.0\n\n", 200},
           {"GET http://a:9400/metrics HTTP/1.1\r\nHost: a\r\n\r\n", 200},
           {"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\nbehind it anything", 200},
           {"GET /stats HTTP/1.0\r\n\r\n", 200},
           {"HEAD /stats HTTP/1.0\r\n\r\n", 200},
           {"POST /stats HTTP/1.0\r\n\r\n", 405},
           {"GET /trace HTTP/1.0\r\n\r\n", 404},
           {"GET /stats/trace HTTP/1.0\r\n\r\n", 404},
           {"GET / HTTP/1.0\r\n\r\n", 404},
           {"GET /metrics/ HTTP/1.0\r\n\r\n", 404},
           {"GET /metricsx HTTP/1.0\r\n\r\n", 404},
           {"GET http://a HTTP/1.0\r\n\r\n", 404},
           {"GET https://a/metrics HTTP/1.0\r\n\r\n", 404},
           {"GET * HTTP/1.0\r\n\r\n", 404},
           {"POST /metrics HTTP/1.0\r\n\r\n", 405},
           {"get /metrics HTTP/1.0\r\n\r\n", 405},
           {"GET /metrics HTTP/2.0\r\n\r\n", 505},
           {"GET /metrics HTTP/1.10\r\n\r\n", 505},
           {"GET /metrics\r\n\r\n", 400},
           {"GET  /metrics HTTP/1.0\r\n\r\n", 400},
           {" GET /metrics HTTP/1.0\r\n\r\n", 400},
           {"GET /met\x80rics HTTP/1.0\r\n\r\n", 400},
           {"GET /metrics HTTP/1.1\r\n\r\n", 400},                        // no host
           {"GET /metrics HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400},  // two hosts
           {"GET /metrics HTTP/1.0\r\nno field\r\n\r\n", 400},
           {"GET /metrics HTTP/1.0\r\n: a\r\n\r\n", 400},
           {"GET /metrics HTTP/1.0\r\nA : b\r\n\r\n", 400},
           {"GET /metrics HTTP/1.0\r\nA: b\r\n folded\r\n\r\n", 400},
           {"GET /metrics HTTP/1.0\r\nA: \0\r\n\r\n"sv, 400},
           {"GET /metrics HTTP/1.0\r\nA: b\rc\r\n\r\n", 400},
           {"\r\n\r\n", 400},
           {"\n\n", 400},
           {"", 0},
           {"GET /metrics HTTP/1.0\r\n", 0},
           {"GET /metrics HTTP/1.0\r\n\r", 0},
           {"GET /metrics HTTP/1.0\r\nA: b\r\n", 0},
       }) {
    EXPECT_EQ(status(row.request), row.status) << row.request;
    EXPECT_EQ(status(row.request, false), row.status == 0 ? 400 : row.status) << row.request;
  }
}

TEST(HttpRequest, ItsLengthIsBounded) {
  const std::string begin = "GET /metrics HTTP/1.0\r\nA: ";
  const std::string most = begin + std::string(kMostHttpRequest - begin.size() - 4, 'x') + "\r\n\r\n";
  EXPECT_EQ(status(most), 200U);
  EXPECT_EQ(status(begin + "x" + most.substr(begin.size())), 431U);
  EXPECT_EQ(status(std::string(kMostHttpRequest, 'x')), 0U);
  EXPECT_EQ(status(std::string(kMostHttpRequest + 1, 'x')), 431U);
}

bool open_metrics(const std::string& accept) {
  const auto parsed = parse_http_request("GET /metrics HTTP/1.0\r\n" + accept + "\r\n\r\n", true);
  EXPECT_EQ(parsed->status, 200U) << accept;
  return parsed->document == HttpDocument::kOpenMetrics;
}

TEST(HttpRequest, WhichFormatIsAccepted) {
  // Prometheus 2.42 and 3 send these headers.
  EXPECT_TRUE(
      open_metrics("Accept: application/openmetrics-text;version=1.0.0,application/openmetrics-text;"
                   "version=0.0.1;q=0.75,text/plain;version=0.0.4;q=0.5,*/*;q=0.1"));
  EXPECT_TRUE(
      open_metrics("Accept: application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
                   "text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"));
  EXPECT_TRUE(open_metrics("ACCEPT:application/OpenMetrics-Text ; Version = \"1.0.0\""));
  EXPECT_TRUE(open_metrics("Accept: text/plain;q=0.3\r\nAccept: application/openmetrics-text;q=0.5"));
  for (const char* const accept :
       {"A: b", "Accept:", "Accept: */*", "Accept: application/openmetrics-text;version=2.0.0",
        "Accept: application/openmetrics-text;q=0", "Accept: application/openmetrics-text;q=x",
        "Accept: application/openmetrics-text;q=0.4, text/plain;q=0.5", "Accept: ;;;=,,;q", "Accept: text/plain"}) {
    EXPECT_FALSE(open_metrics(accept)) << accept;
  }
}

TEST(HttpRequest, StatsHaveOneFormat) {
  const auto parsed =
      parse_http_request("GET /stats?x HTTP/1.0\r\nAccept: application/openmetrics-text;version=1.0.0\r\n\r\n", true);
  EXPECT_EQ(parsed->status, 200U);
  EXPECT_EQ(parsed->document, HttpDocument::kStats);
}

TEST(HttpRequest, Responses) {
  EXPECT_EQ(http_response({.status = 200}, "text/x", "abc\n"),
            "HTTP/1.1 200 OK\r\nContent-Type: text/x\r\nContent-Length: 4\r\nConnection: close\r\n\r\nabc\n");
  EXPECT_EQ(http_response({.status = 200, .with_body = false}, "text/x", "abc\n"),
            "HTTP/1.1 200 OK\r\nContent-Type: text/x\r\nContent-Length: 4\r\nConnection: close\r\n\r\n");
  EXPECT_EQ(http_response({.status = 405}, "text/x", "abc\n"),
            "HTTP/1.1 405 Method Not Allowed\r\nAllow: GET, HEAD\r\nContent-Type: text/plain; charset=utf-8\r\n"
            "Content-Length: 19\r\nConnection: close\r\n\r\nallowed: GET, HEAD\n");
}

}  // namespace
}  // namespace gradlane::test::http_request_test
