// metrics_text.h - figures as Prometheus reads them: families, samples, labels (pure; control thread)
//
// There are two similar formats: the text format 0.0.4 and OpenMetrics 1.0.0. In OpenMetrics the name of a family of
// counters has no _total, units have a line of their own, and the end has a mark.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "base/time_histogram.h"

namespace gradlane {

enum class MetricsFormat : uint8_t { kText, kOpenMetrics };

// Returns the Content-Type of a document.
[[nodiscard]] const char* content_type(MetricsFormat format) noexcept;

// Labels such as node="0",rank="1". Names must be allowed in Prometheus; values may be anything. Characters that are
// not ASCII become '?': if they were not UTF-8, a whole scrape would be refused.
class MetricLabels {
 public:
  [[nodiscard]] MetricLabels with(std::string_view name, std::string_view value) const;
  [[nodiscard]] MetricLabels with(std::string_view name, uint64_t value) const;
  [[nodiscard]] const std::string& text() const noexcept { return text_; }

 private:
  std::string text_;
};

class MetricsText {
 public:
  enum class Type : uint8_t { kCounter, kGauge, kHistogram };
  explicit MetricsText(MetricsFormat format) : format_(format) {}

  // Begins a family; the samples that follow belong to it. A counter's name ends in _total; a unit, _seconds or _bytes,
  // comes before that. A family without samples leaves no text. The texts must outlive the samples. `help` must be one
  // line.
  void family(std::string_view name, Type type, std::string_view help);
  void sample(const MetricLabels& labels, uint64_t value);
  void sample(const MetricLabels& labels, double value);
  // Adds a histogram of times. They are in nanoseconds, and written in seconds.
  template <unsigned kFirst, size_t kBounds>
  void times(const MetricLabels& labels, const TimeHistogram<kFirst, kBounds>& times) {
    double bounds[kBounds];
    for (size_t i = 0; i < kBounds; ++i) bounds[i] = static_cast<double>(times.bound(i)) / kSecond;
    histogram(labels, bounds, times.counts, static_cast<double>(times.sum) / kSecond);
  }

  // Returns the document. Nothing may follow.
  [[nodiscard]] std::string end();

 private:
  void head();
  void line(std::string_view suffix, const std::string& labels, const std::string& value);
  // `counts` has one element more than `bounds`, and is not cumulative.
  void histogram(const MetricLabels& labels, std::span<const double> bounds, std::span<const uint64_t> counts,
                 double sum);

  const MetricsFormat format_;
  std::string_view name_;
  std::string_view help_;
  Type type_ = Type::kGauge;
  bool open_ = false;  // the head of the family has been written
  std::string text_;
};

}  // namespace gradlane
