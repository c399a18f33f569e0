// accelerator.cc - the engine's constructor, its periodic work and its figures (worker thread; the constructor: control
// thread)
#include "dataplane/accelerator/engine/accelerator.h"

namespace gradlane::accel {
namespace {

constexpr Nanos kSweepEvery = 10 * kMillisecond;

}  // namespace

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

void Accelerator::publish() noexcept {
  published_.publish(counters_);
  published_faults_.publish(faults_);
  published_streams_.publish(streams_.figures());
}

}  // namespace gradlane::accel
