// http_response_test.cc - parsing of HTTP responses: the status and the place of the body
#include "tools/admin/http_response.h"

#include <gtest/gtest.h>

#include <string>

namespace gradlane::test::http_response_test {
namespace {

constexpr unsigned kMore = 1;  // not a status: the response is not complete

unsigned status(std::string_view response, bool may_grow = true) {
  const auto parsed = parse_http_response(response, may_grow);
  return parsed ? parsed->status : kMore;
}

TEST(HttpResponse, Statuses) {
  struct Row {
    std::string_view response;
    unsigned status;
  };
  using std::string_view_literals::operator""sv;
  for (const Row& row : {
           Row{"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", 200},
           {"HTTP/1.0 200 OK\r\n\r\n", 200},
           {"HTTP/1.0 200\r\n\r\n", 200},
           {"HTTP/1.1 200 OK\n\n", 200},
           {"HTTP/1.1 404 Not Found\r\nA: b\r\n\r\n", 404},
           {"HTTP/1.1 200 OK\r\ncontent-length:\t7 \r\nContent-Length: 7\r\n\r\n", 200},
           {"HTTP/2 200 OK\r\n\r\n", 0},
           {"HTTP/1.2 200 OK\r\n\r\n", 0},
           {"HTTP/1.1  200 OK\r\n\r\n", 0},
           {"HTTP/1.1 99 OK\r\n\r\n", 0},
           {"HTTP/1.1 2000 OK\r\n\r\n", 0},
           {"HTTP/1.1 +20 OK\r\n\r\n", 0},
           {"HTTP/1.1\r\n\r\n", 0},
           {"HTTP/1.1 200 OK\r\nContent-Length: 7\r\nContent-Length: 8\r\n\r\n", 0},
           {"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", 0},
           {"HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551616\r\n\r\n", 0},
           {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", 0},
           {"HTTP/1.1 200 OK\r\nno field\r\n\r\n", 0},
           {"HTTP/1.1 200 OK\r\nA: b\r\n folded\r\n\r\n", 0},
           {"HTTP/1.1 200 OK\r\nA: \0\r\n\r\n"sv, 0},
           {"SSH-2.0-OpenSSH", 0},  // refused at once
           {"\x16\x03\x01", 0},
           {"\r\n\r\n", 0},
           {"", kMore},
           {"HTT", kMore},
           {"HTTP/1.1 200 OK\r\n", kMore},
           {"HTTP/1.1 200 OK\r\nA: b\r\n\r", kMore},
       }) {
    EXPECT_EQ(status(row.response), row.status) << row.response;
    EXPECT_EQ(status(row.response, false), row.status == kMore ? 0 : row.status) << row.response;
  }
}

TEST(HttpResponse, WhereTheBodyIs) {
  const std::string_view header = "HTTP/1.1 200 OK\r\nContent-Type: x\r\ncontent-LENGTH: 12\r\n\r\n";
  const auto parsed = parse_http_response(std::string(header) + "{\"a\":\"\r\n\r\n\"}", true);
  ASSERT_TRUE(parsed);
  EXPECT_EQ(parsed->body, header.size());
  EXPECT_EQ(parsed->length, 12U);
  EXPECT_FALSE(parse_http_response("HTTP/1.1 200 OK\r\n\r\n{}", true)->length) << "until the end";
}

TEST(HttpResponse, AnEndlessHeader) {
  const std::string begin = "HTTP/1.1 200 OK\r\nA: ";
  const std::string most = begin + std::string(kMostHttpHeader - begin.size() - 4, 'x') + "\r\n\r\n";
  EXPECT_EQ(status(most), 200U);
  EXPECT_EQ(status(begin + "x" + most.substr(begin.size())), 0U);
  EXPECT_EQ(status(begin + std::string(kMostHttpHeader - begin.size() - 1, 'x')), kMore);
  EXPECT_EQ(status(begin + std::string(kMostHttpHeader - begin.size(), 'x')), 0U);
}

}  // namespace
}  // namespace gradlane::test::http_response_test
