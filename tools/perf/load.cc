// load.cc - the background load: a search for the traffic that causes the tail that is asked for (the same calls on all
// ranks)
#include "tools/perf/load.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/random.h"
#include "tools/perf/tail.h"

namespace gradlane {
namespace {

constexpr unsigned kPeriod = 16;
constexpr double kAt99 = 0.84;  // one in 16 operations has a burst, so this quantile of those is p99 of all operations
constexpr unsigned kPlain = 16;
// operations per burst during the search; between bursts, TCP's congestion window shrinks
constexpr unsigned kSpacing = 8;
constexpr unsigned kBursts = 8;
constexpr unsigned kTries = 10;
constexpr double kNear = 0.07;
constexpr uint64_t kLeast = 4096;
constexpr uint64_t kFirst = uint64_t{256} << 10;
constexpr uint64_t kMost = uint64_t{256} << 20;

}  // namespace

Load::Load(Trainer& trainer, const PerfSettings& plan) : aim_(plan.background), seed_(plan.seed) {
  if (aim_ == 0) return;
  if (trainer.world() == 1) throw SetupError("--background-load needs at least two ranks; this ring has one");
  background_ = std::make_unique<Background>(trainer, plan.interface);
}

void Load::tune(const Run& run) {
  if (!background_) return;
  background_->drain();
  const double plain = tail_of(run(kPlain, {})).p50;
  double nearest = std::numeric_limits<double>::infinity();
  uint64_t bytes = bytes_ == 0 ? kFirst : bytes_;
  for (unsigned i = 0; i < kTries && nearest > kNear; ++i) {
    const std::vector<double> all = run(kSpacing * kBursts, [this, bytes](unsigned number) {
      if (number % kSpacing == 0) background_->burst(bytes);
    });
    background_->drain();
    std::vector<double> with;
    for (size_t k = 0; k < all.size(); k += kSpacing) with.push_back(all[k]);
    std::ranges::sort(with);
    const double ratio = percentile(with, kAt99) / plain;
    const double off = std::abs(std::log(ratio / aim_));
    if (off < nearest) bytes_ = bytes;
    nearest = std::min(nearest, off);
    const double grow = std::clamp((aim_ - 1) / std::max(ratio - 1, 0.05), 0.25, 4.0);
    bytes = std::clamp(static_cast<uint64_t>(static_cast<double>(bytes) * grow), kLeast, kMost);
  }
}

PerfStart Load::bursts() {
  if (!background_) return {};
  return [this](unsigned number) {
    if (number % kPeriod == Random::mix(seed_, number / kPeriod) % kPeriod) background_->burst(bytes_);
  };
}

void Load::check() const {
  if (background_) background_->check();
}

}  // namespace gradlane
