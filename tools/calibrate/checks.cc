// checks.cc - how well the figures fit the ring on which they were measured (no I/O)
#include <algorithm>
#include <cstddef>

#include "tools/calibrate/checks.h"

namespace gradlane {
namespace {

// latency dominates shorter all-reduces, but not an exchange of gradients
constexpr size_t kLeastChecked = size_t{64} << 10;

}  // namespace

CalibrationChecks checks_of(std::span<const CheckedTime> checked) {
  CalibrationChecks checks;
  double furthest = 0;
  const CheckedTime* raw = nullptr;
  const CheckedTime* fixed = nullptr;
  for (const CheckedTime& each : checked) {
    if (each.bytes < kLeastChecked || each.predicted <= 0 || each.measured <= 0) continue;
    const double ratio = each.measured / each.predicted;
    const double off = std::max(ratio, 1 / ratio);
    if (off > furthest) checks.times_as_long = ratio;
    furthest = std::max(furthest, off);
    const CheckedTime*& longest = each.codec == "raw" ? raw : fixed;
    if (longest == nullptr || each.bytes > longest->bytes) longest = &each;
  }
  if (raw == nullptr || fixed == nullptr) return {};
  checks.speedup = raw->measured / fixed->measured;
  return checks;
}

}  // namespace gradlane
