// inbound.cc - wire to host: restores packets, and reports acknowledgements and ends of TCP connections (worker thread
// only)
#include "dataplane/accelerator/engine/accelerator.h"

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
    if (view.reserved_bit) {
      set_reserved_bit(frame.data, false);
      counters_.add(Counter::kUnescaped);
    } else if (handle_bundle(frame, view, now)) {
      return;
    } else {
      counters_.add(Counter::kForeign);
    }
  }
  // Checksums are unfinished if both ends of the wire are in one machine.
  if (view.layer >= Layer::kOptions && view.layer != Layer::kFirstFragment &&
      l4_checksum_unfinished(frame.data, view)) {
    set_l4_checksum(frame.data, view);
    counters_.add(Counter::kWireChecksumFinished);
  }
  hear_segment(frame, view, false, now);
  io_.to_host(frame);
}

// Reports acknowledgements and ends of connections to streams_. `checked`: the segment's checksum is known to be right.
void Accelerator::hear_segment(const Frame& frame, const PacketView& view, bool checked, Nanos now) noexcept {
  if (view.layer < Layer::kOptions || view.key.protocol != kTcpProtocol) return;
  const bool ends = (view.flags & (kRst | kFin)) != 0;
  if (!ends && ((view.flags & kAck) == 0 || !streams_.any_records())) return;
  if (!checked && !l4_checksum_right(frame.data, view)) return;
  streams_.from_wire(segment_of(frame.data, view), now);
}

// Accelerators send only bundles with the wire's code point, but other senders may use the code point too. So an
// invalid bundle is dropped only if its sender is known as an accelerator. A packet that is a valid bundle in every bit
// is handled as one, even from an unknown sender, because the host could not use it.
bool Accelerator::handle_bundle(Frame frame, const PacketView& view, Nanos now) noexcept {
  const BundleFault fault = reader_.begin({frame.data, frame.bytes}, view, setup_.mtu);
  if (fault != BundleFault::kNone) {
    // The source address in a damaged header is not reliable.
    const bool readable = view.layer != Layer::kBroken && fault != BundleFault::kBadIpChecksum;
    if (readable && !peers_.is_accelerator(source_ip(frame.data), now)) return false;
    faults_.add(fault);
    counters_.add(Counter::kWireDropped);
    io_.release(frame);
    return true;
  }
  switch (reader_.kind()) {
    case kKindHello:
      handle_hello(frame, view, now);
      return true;
    case kKindAnswer:
      counters_.add(peers_.answered(view.key.source_ip, reader_.nonce(), now) ? Counter::kHelloAnswers
                                                                              : Counter::kHelloRefused);
      break;
    default:
      restore_all(now);
  }
  io_.release(frame);
  return true;
}

void Accelerator::handle_hello(Frame frame, const PacketView& view, Nanos now) noexcept {
  if (!host_macs_.has(frame.data, now)) {
    counters_.add(Counter::kHelloOthers);
    io_.release(frame);
    return;
  }
  counters_.add(Counter::kHelloReceived);
  peers_.asks(view.key.source_ip, now);
  frame.bytes = answer_hello(frame.data, view);
  io_.to_wire(frame);
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
    if (restored.bytes == 0) {
      counters_.add(Counter::kNoBuffer, left);
      io_.release(restored);
      return;
    }
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
