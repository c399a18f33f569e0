// inbound.cc - wire to host: what is restored, and what is heard of connections (worker thread only)
#include "dataplane/accelerator/accelerator.h"

namespace gradlane::accel {
void Accelerator::from_wire(Frame frame, Nanos now) noexcept {
  counters_.add(Counter::kFromWire);
  if (too_long({frame.data, frame.bytes}, setup_.mtu)) {
    counters_.add(Counter::kSuperSegment);
    io_.release(frame);
    return;
  }
  const PacketView view = view_packet({frame.data, frame.bytes});
  if (on_wire(view)) {
    if (!view.reserved_bit) {
      take_bundle(frame, view, now);
      return;
    }
    set_reserved_bit(frame.data, false);
    counters_.add(Counter::kUnescaped);
  }
  hear_segment(frame, view, false, now);
  io_.to_host(frame);
}

// Acknowledgements and ends of connections. `checked`: its checksum is right.
void Accelerator::hear_segment(const Frame& frame, const PacketView& view, bool checked, Nanos now) noexcept {
  if (view.layer < Layer::kOptions || view.key.protocol != kTcpProtocol) return;
  const bool ends = (view.flags & (kRst | kFin)) != 0;
  if (!ends && ((view.flags & kAck) == 0 || !streams_.any_records())) return;
  if (!checked && !l4_checksum_right(frame.data, view)) return;
  streams_.from_wire(segment_of(frame.data, view), now);
}

void Accelerator::take_bundle(Frame frame, const PacketView& view, Nanos now) noexcept {
  const BundleFault fault = reader_.begin({frame.data, frame.bytes}, view, setup_.mtu);
  if (fault != BundleFault::kNone) {
    ++faults_[static_cast<size_t>(fault)];
    counters_.add(Counter::kWireDropped);
    io_.release(frame);
    return;
  }
  switch (reader_.kind()) {
    case kKindHello:
      counters_.add(Counter::kHelloReceived);
      frame.bytes = answer_hello(frame.data, view);
      io_.to_wire(frame);
      return;
    case kKindAnswer:
      counters_.add(peers_.answered(view.key.source_ip, reader_.nonce(), now) ? Counter::kHelloAnswers
                                                                              : Counter::kHelloRefused);
      break;
    default:
      restore_all(now);
  }
  io_.release(frame);
}

void Accelerator::restore_all(Nanos now) noexcept {
  counters_.add(Counter::kRestoredFrames);
  for (size_t left = reader_.records(); left != 0; --left) {
    Frame restored = io_.allocate();
    if (restored.data == nullptr) {
      counters_.add(Counter::kNoBuffer, left);
      return;
    }
    restored.bytes = reader_.next(setup_.tos_compressed, {restored.data, restored.room});
    counters_.add(Counter::kRestored);
    hear_segment(restored, view_packet({restored.data, restored.bytes}), true, now);
    io_.to_host(restored);
  }
}

void Accelerator::ask_peers(Nanos now) noexcept {
  for (;;) {
    const Peers::Question question = peers_.next_question(now);
    if (question.headers == nullptr) return;
    Frame frame = io_.allocate();
    if (frame.data == nullptr) return;
    frame.bytes =
        write_hello(frame.data, question.headers, setup_.udp_port, setup_.tos_wire, kKindHello, question.nonce);
    counters_.add(Counter::kHelloSent);
    io_.to_wire(frame);
  }
}

}  // namespace gradlane::accel
