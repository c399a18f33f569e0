// accelerator.cc - the engine's start, its clockwork and its figures (worker thread; the start: control thread)
#include "dataplane/accelerator/engine/accelerator.h"

namespace gradlane::accel {
namespace {

constexpr Nanos kSweepEvery = 10 * kMillisecond;

// Among other counters it must be clear what they are of.
const char* published_fault_name(BundleFault fault) noexcept {
  switch (fault) {
#define GRADLANE_BUNDLE_NAME(symbol, name, help) \
  case BundleFault::k##symbol:                   \
    return "bundle_" name;
    GRADLANE_BUNDLE_FAULTS(GRADLANE_BUNDLE_NAME)
#undef GRADLANE_BUNDLE_NAME
    case BundleFault::kNone:
    case BundleFault::kCount:
      break;
  }
  return "bundle_none";
}

}  // namespace

const char* counter_name(Counter counter) noexcept {
  switch (counter) {
#define GRADLANE_ACCELERATOR_NAME(symbol, name, help) \
  case Counter::k##symbol:                            \
    return name;
    GRADLANE_ACCELERATOR_COUNTERS(GRADLANE_ACCELERATOR_NAME)
#undef GRADLANE_ACCELERATOR_NAME
    case Counter::kCount:
      break;
  }
  return "?";
}

Accelerator::Accelerator(const Setup& setup, FrameIo& io)
    : setup_(setup),
      io_(io),
      peers_(setup.seed),
      streams_(setup.codec, setup.streams),
      bundles_({setup.codec, setup.tos_wire, setup.hold}, io, counters_),
      reader_(setup.codec.isa()) {}

void Accelerator::poll(Nanos now) noexcept {
  bundles_.close_due(now);
  ask_peers(now);
  if (now >= sweep_at_) {
    sweep_at_ = now + kSweepEvery;
    streams_.sweep(now);
  }
  if (published_.due(now)) publish();
}

const char* Accelerator::published_name(size_t i) noexcept {
  if (i < Counters::kSize) return counter_name(static_cast<Counter>(i));
  if (i < Counters::kSize + kFaults) return published_fault_name(static_cast<BundleFault>(i - Counters::kSize));
  return TcpStreams::figure_name(i - Counters::kSize - kFaults);
}

void Accelerator::publish() noexcept {
  for (size_t i = 0; i < Counters::kSize; ++i) published_.set(i, counters_[i]);
  for (size_t i = 0; i < kFaults; ++i) published_.set(Counters::kSize + i, faults_[i]);
  for (size_t i = 0; i < TcpStreams::kFigures; ++i) {
    published_.set(Counters::kSize + kFaults + i, streams_.figure(i));
  }
}

}  // namespace gradlane::accel
