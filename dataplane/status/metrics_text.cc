// metrics_text.cc - figures as Prometheus reads them: families, samples, labels (pure; control thread)
#include "dataplane/status/metrics_text.h"

#include <fmt/format.h>

#include <cmath>
#include <utility>

namespace gradlane {
namespace {

constexpr std::string_view kTotal = "_total";
constexpr const char* kTypeWords[] = {"counter", "gauge", "histogram"};

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  return fmt::format("{}", value);
}

std::string escaped(std::string_view value) {
  std::string text;
  for (const char c : value) {
    if (c == '\n') {
      text += "\\n";
      continue;
    }
    if (c == '\\' || c == '"') text += '\\';
    const bool printable = c >= ' ' && c <= '~';
    text += printable ? c : '?';
  }
  return text;
}

// Returns the unit at the end of a name; "" if it has none.
std::string_view unit_of(std::string_view name) {
  for (const std::string_view unit : {"seconds", "bytes"}) {
    if (name.ends_with(unit)) return unit;
  }
  return "";
}

}  // namespace

const char* content_type(MetricsFormat format) noexcept {
  return format == MetricsFormat::kOpenMetrics ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
                                               : "text/plain; version=0.0.4; charset=utf-8";
}

MetricLabels MetricLabels::with(std::string_view name, std::string_view value) const {
  MetricLabels more = *this;
  more.text_ += fmt::format("{}{}=\"{}\"", text_.empty() ? "" : ",", name, escaped(value));
  return more;
}

MetricLabels MetricLabels::with(std::string_view name, uint64_t value) const {
  return with(name, std::to_string(value));
}

void MetricsText::family(std::string_view name, Type type, std::string_view help) {
  name_ = name;
  type_ = type;
  help_ = help;
  open_ = false;
}

void MetricsText::head() {
  if (std::exchange(open_, true)) return;
  std::string_view name = name_;
  if (format_ == MetricsFormat::kOpenMetrics && name.ends_with(kTotal)) name.remove_suffix(kTotal.size());
  const std::string_view unit = format_ == MetricsFormat::kOpenMetrics ? unit_of(name) : "";
  text_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help_, name, kTypeWords[static_cast<size_t>(type_)]);
  if (!unit.empty()) text_ += fmt::format("# UNIT {} {}\n", name, unit);
}

void MetricsText::line(std::string_view suffix, const std::string& labels, const std::string& value) {
  head();
  text_ += fmt::format("{}{}{}{}{} {}\n", name_, suffix, labels.empty() ? "" : "{", labels, labels.empty() ? "" : "}",
                       value);
}

void MetricsText::sample(const MetricLabels& labels, uint64_t value) { line("", labels.text(), std::to_string(value)); }
void MetricsText::sample(const MetricLabels& labels, double value) { line("", labels.text(), number(value)); }

void MetricsText::histogram(const MetricLabels& labels, std::span<const double> bounds,
                            std::span<const uint64_t> counts, double sum) {
  uint64_t total = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    total += counts[i];
    const std::string bound = i < bounds.size() ? number(bounds[i]) : "+Inf";
    line("_bucket", labels.with("le", bound).text(), std::to_string(total));
  }
  line("_sum", labels.text(), number(sum));
  line("_count", labels.text(), std::to_string(total));
}

std::string MetricsText::end() {
  if (format_ == MetricsFormat::kOpenMetrics) text_ += "# EOF\n";
  return std::move(text_);
}

}  // namespace gradlane
