// exchange_document_test.cc - the document of gradlane.torch.exchange_times, and documents that are wrong
#include "tools/calibrate/exchange_document.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace gradlane::test::exchange_document_test {
namespace {

using testing::HasSubstr;

std::string document(const std::string& points) {
  return R"({"ranks": 2, "cores": 0.5, "background": 0.25, "exchanges": [
    {"library": "gloo", "codec": "fp32", "points": [{"bytes": 65536, "seconds": 0.001, "busy": 0.002}]},
    {"library": "gradlane", "codec": "topk:1%+fixed:10", "points": )" +
         points + "}]}\n";
}

std::string fault_of(const std::string& text) {
  try {
    (void)parse_exchange_times(text);
    return "";
  } catch (const SetupError& error) {
    return error.what();
  }
}

TEST(ExchangeDocument, Parsed) {
  const ExchangeTimes times = parse_exchange_times(
      document(R"([{"bytes": 4096, "seconds": 1e-3, "busy": 0}, {"bytes": 8192, "seconds": 2, "busy": 1.5}])"));
  EXPECT_EQ(times.cores, 0.5);
  EXPECT_EQ(times.background, 0.25);
  ASSERT_EQ(times.exchanges.size(), 2U);
  EXPECT_EQ(times.exchanges[0].library, "gloo");
  EXPECT_EQ(times.exchanges[0].codec, "fp32");
  EXPECT_EQ(times.exchanges[1].codec, "topk:1%+fixed:10");
  ASSERT_EQ(times.exchanges[1].points.size(), 2U);
  EXPECT_EQ(times.exchanges[1].points[1].bytes, 8192);
  EXPECT_EQ(times.exchanges[1].points[1].seconds, 2);
  EXPECT_EQ(times.exchanges[1].points[1].busy, 1.5);
}

TEST(ExchangeDocument, Faults) {
  EXPECT_THAT(fault_of(""), HasSubstr("nothing"));
  EXPECT_THAT(fault_of("[Gloo] Rank 0 is connected"), HasSubstr("no JSON, but [Gloo] Rank 0"));
  EXPECT_THAT(fault_of("[]"), HasSubstr("cores is missing"));
  EXPECT_THAT(fault_of(R"({"cores": "2"})"), HasSubstr(R"(cores is "2"; it must be a number)"));
  EXPECT_THAT(fault_of(R"({"cores": 0})"), HasSubstr("cores is 0"));
  EXPECT_THAT(fault_of(R"({"cores": 1, "background": 0, "exchanges": []})"), HasSubstr("exchanges is no list"));
  EXPECT_THAT(fault_of(R"({"cores": 1, "background": 0, "exchanges": [{"library": ""}]})"),
              HasSubstr(R"(exchanges[0].library is "")"));
  EXPECT_THAT(fault_of(document("[]")), HasSubstr("exchanges[1].points is no list, or empty"));
  EXPECT_THAT(fault_of(document(R"([{"bytes": 4096, "busy": 0}])")),
              HasSubstr("exchanges[1].points[0].seconds is missing"));
  EXPECT_THAT(fault_of(document(R"([{"bytes": 4096, "seconds": 0, "busy": 0}])")), HasSubstr("seconds is 0"));
  EXPECT_THAT(fault_of(document(R"([{"bytes": 4096, "seconds": 1, "busy": -1}])")), HasSubstr("busy is -1"));
  EXPECT_THAT(fault_of(document(R"([{"bytes": 8, "seconds": 1, "busy": 0}, {"bytes": 8, "seconds": 1, "busy": 0}])")),
              HasSubstr("exchanges[1].points[1].bytes is 8; it must be a number of at least 9"));
}

}  // namespace
}  // namespace gradlane::test::exchange_document_test
