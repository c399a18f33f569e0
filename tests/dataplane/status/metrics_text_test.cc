// metrics_text_test.cc - families, samples and labels, byte by byte, in both formats
#include "dataplane/status/metrics_text.h"

#include <gtest/gtest.h>

#include <limits>

namespace gradlane::test::metrics_text_test {
namespace {

using Type = MetricsText::Type;

std::string document(MetricsFormat format) {
  MetricsText text(format);
  const MetricLabels node = MetricLabels().with("node", uint64_t{3});
  text.family("gradlane_sent_bytes_total", Type::kCounter, "bytes sent");
  text.sample(node.with("codec", "fixed"), uint64_t{18446744073709551615U});
  text.sample(node.with("codec", "raw"), uint64_t{0});
  text.family("gradlane_nothing_total", Type::kCounter, "what has no samples");
  text.family("gradlane_window_packets", Type::kGauge, "window");
  text.sample({}, 12.5);
  TimeHistogram<10, 2> times;
  for (const Nanos time : std::initializer_list<Nanos>{1000, 2000, 2000, 5'000'000}) times.add(time);
  text.family("gradlane_rtt_seconds", Type::kHistogram, "round trips");
  text.times(node, times);
  return text.end();
}

TEST(MetricsText, TextFormat) {
  EXPECT_EQ(document(MetricsFormat::kText), R"(# HELP gradlane_sent_bytes_total bytes sent
# TYPE gradlane_sent_bytes_total counter
gradlane_sent_bytes_total{node="3",codec="fixed"} 18446744073709551615
gradlane_sent_bytes_total{node="3",codec="raw"} 0
# HELP gradlane_window_packets window
# TYPE gradlane_window_packets gauge
gradlane_window_packets 12.5
# HELP gradlane_rtt_seconds round trips
# TYPE gradlane_rtt_seconds histogram
gradlane_rtt_seconds_bucket{node="3",le="1.024e-06"} 1
gradlane_rtt_seconds_bucket{node="3",le="2.048e-06"} 3
gradlane_rtt_seconds_bucket{node="3",le="+Inf"} 4
gradlane_rtt_seconds_sum{node="3"} 0.005005
gradlane_rtt_seconds_count{node="3"} 4
)");
}

TEST(MetricsText, OpenMetrics) {
  EXPECT_EQ(document(MetricsFormat::kOpenMetrics), R"(# HELP gradlane_sent_bytes bytes sent
# TYPE gradlane_sent_bytes counter
# UNIT gradlane_sent_bytes bytes
gradlane_sent_bytes_total{node="3",codec="fixed"} 18446744073709551615
gradlane_sent_bytes_total{node="3",codec="raw"} 0
# HELP gradlane_window_packets window
# TYPE gradlane_window_packets gauge
gradlane_window_packets 12.5
# HELP gradlane_rtt_seconds round trips
# TYPE gradlane_rtt_seconds histogram
# UNIT gradlane_rtt_seconds seconds
gradlane_rtt_seconds_bucket{node="3",le="1.024e-06"} 1
gradlane_rtt_seconds_bucket{node="3",le="2.048e-06"} 3
gradlane_rtt_seconds_bucket{node="3",le="+Inf"} 4
gradlane_rtt_seconds_sum{node="3"} 0.005005
gradlane_rtt_seconds_count{node="3"} 4
# EOF
)");
}

TEST(MetricsText, LabelsMayBeAnything) {
  EXPECT_EQ(MetricLabels().with("port", "a\"b\\c\nd").text(), R"(port="a\"b\\c\nd")");
  EXPECT_EQ(MetricLabels().with("port", "gr\xc3\xb6\xff\x01").text(), R"(port="gr????")");
  EXPECT_EQ(MetricLabels().with("a", "").with("b", uint64_t{7}).text(), R"(a="",b="7")");
}

TEST(MetricsText, NumbersThatAreNone) {
  MetricsText text(MetricsFormat::kText);
  text.family("g", Type::kGauge, "h");
  text.sample({}, std::numeric_limits<double>::infinity());
  text.sample({}, -std::numeric_limits<double>::infinity());
  text.sample({}, std::numeric_limits<double>::quiet_NaN());
  EXPECT_EQ(text.end(), "# HELP g h\n# TYPE g gauge\ng +Inf\ng -Inf\ng NaN\n");
}

}  // namespace
}  // namespace gradlane::test::metrics_text_test
