// outbound.cc - host to wire: packets are compressed, or sent uncompressed (worker thread only)
#include "dataplane/accelerator/engine/accelerator.h"
#include "dataplane/accelerator/engine/record.h"

#include "dataplane/frame/frame.h"
#include "dataplane/frame/internet.h"

namespace gradlane::accel {
namespace {

constexpr uint8_t kEndOfOptions = 0, kNoOption = 1, kMd5 = 19, kAuthentication = 29, kMultipath = 30;

// Returns whether both checksums of an unfragmented packet are right. A packet with a wrong one is not compressed: the
// checksum of the restored packet would hide the damage.
bool checksums_right(const uint8_t* frame, const PacketView& view) noexcept {
  return ip_checksum_right(frame) && l4_checksum_right(frame, view);
}

// Returns whether a SYN has TCP options with which no byte of the connection may be changed. MD5 (RFC 2385) and TCP-AO
// (RFC 5925) sign the data. MPTCP (RFC 8684) may also send the data over other connections, where floats begin
// elsewhere.
bool binds_data(const uint8_t* frame, const PacketView& view) noexcept {
  const uint8_t* option = frame + view.l4 + internet::kTcpBytes;
  const uint8_t* const end = frame + view.payload;
  while (option < end && *option != kEndOfOptions) {
    if (*option == kMd5 || *option == kAuthentication || *option == kMultipath) return true;
    if (*option == kNoOption) {
      ++option;
    } else {
      if (end - option < 2 || option[1] < 2) return true;  // malformed options
      option += option[1];
    }
  }
  return false;
}

}  // namespace

void Accelerator::from_host(Frame frame, Nanos now) noexcept {
  counters_.add(Counter::kFromHost);
  if (frame.bytes >= kEthernetBytes) host_macs_.learn(frame.data + HostMacs::kMacBytes, now);
  if (too_long({frame.data, frame.bytes}, setup_.mtu)) {
    counters_.add(Counter::kSuperSegment);
    io_.release(frame);
    return;
  }
  const PacketView view = view_packet({frame.data, frame.bytes});
  if (marked(view)) counters_.add(Counter::kMarked);
  if (on_wire(view) && !escape(frame, view)) return;
  Record record;
  if (view.layer >= Layer::kOptions) {
    // A packet socket gets a frame before its device would have computed the checksum.
    if (view.layer != Layer::kFirstFragment && l4_checksum_unfinished(frame.data, view)) {
      set_l4_checksum(frame.data, view);
      counters_.add(Counter::kChecksumFinished);
    }
    if (view.key.protocol == kTcpProtocol) {
      record = record_of_tcp(frame, view, now);
    } else if (marked(view)) {
      record = record_of_marked_udp(frame, view, now);
    }
    if (marked(view)) peers_.count(view.key.destination_ip, !record.empty());
    if (record.empty()) bundles_.close(view.key);
  } else if (marked(view)) {
    counters_.add(Counter::kRawShape);
  }
  if (record.empty()) {
    io_.to_wire(frame);
    return;
  }
  counters_.add(Counter::kCompressed);
  counters_.add(Counter::kPayloadBytes, view.payload_bytes);
  counters_.add(Counter::kCompressedBytes, record.size());
  bundles_.add(frame, view, record, now);
}

// Sets the reserved bit of a packet that the far end would take for a bundle. If the bit is set already, drops the
// packet and returns false: the far end would clear that bit.
bool Accelerator::escape(const Frame& frame, const PacketView& view) noexcept {
  if (view.reserved_bit) {
    counters_.add(Counter::kWireTosDropped);
    io_.release(frame);
    return false;
  }
  counters_.add(Counter::kWireTos);
  set_reserved_bit(frame.data, true);
  return true;
}

Accelerator::Record Accelerator::leave(const PacketView& view, Counter why) noexcept {
  if (marked(view)) counters_.add(why);
  return {};
}

Accelerator::Record Accelerator::encode(std::span<const uint8_t> payload, unsigned lead) noexcept {
  return {scratch_.data(), write_record(setup_.codec, payload, lead, scratch_)};
}

Accelerator::Record Accelerator::record_of_marked_udp(const Frame& frame, const PacketView& view, Nanos now) noexcept {
  if (!may_compress(view)) return leave(view, view.payload_bytes == 0 ? Counter::kRawSmall : Counter::kRawShape);
  if (view.payload_bytes % sizeof(float) != 0) return leave(view, Counter::kRawSize);
  if (view.payload_bytes < kLeastPayload) return leave(view, Counter::kRawSmall);
  if (!restores(frame, view, now)) return leave(view, Counter::kRawNoPeer);
  if (!checksums_right(frame.data, view)) return leave(view, Counter::kRawChecksum);
  const Record record = encode(payload_of(frame, view), 0);
  return record.empty() ? leave(view, Counter::kRawNoGain) : record;
}

Segment Accelerator::segment_of(const uint8_t* frame, const PacketView& view) noexcept {
  const bool bound = (view.flags & kSyn) != 0 && binds_data(frame, view);
  return {.key = view.key,
          .seq = view.seq,
          .ack = view.ack,
          .flags = view.flags,
          .bytes = view.payload_bytes,
          .plain = view.layer == Layer::kTcp && !bound};
}

// Each segment of the host is passed to streams_, marked or not, because a program may mark a connection at any time.
Accelerator::Record Accelerator::record_of_tcp(const Frame& frame, const PacketView& view, Nanos now) noexcept {
  const Segment segment = segment_of(frame.data, view);
  const TcpStreams::Decision decision = streams_.from_host(segment, now);
  // restores() asks the address with the first marked packet, even one without data. So the answer has arrived when
  // data follows.
  const bool restored = marked(view) && restores(frame, view, now);
  if (decision.treatment == TcpStreams::Treatment::kSentBefore) {
    return send_again(frame, view, segment, decision, restored, now);
  }
  if (!marked(view)) return {};
  if (view.layer != Layer::kTcp || view.reserved_bit) return leave(view, Counter::kRawShape);
  if ((view.flags & kNeverCompressed) != 0) return leave(view, Counter::kRawFlags);
  if (view.payload_bytes < kLeastPayload) return leave(view, Counter::kRawSmall);
  if (!restored) return leave(view, Counter::kRawNoPeer);
  if (decision.treatment == TcpStreams::Treatment::kUntouched) return leave(view, Counter::kRawUnknown);
  return compress_fresh(frame, view, segment, decision);
}

Accelerator::Record Accelerator::compress_fresh(const Frame& frame, const PacketView& view, const Segment& segment,
                                                const TcpStreams::Decision& decision) noexcept {
  if (!checksums_right(frame.data, view)) return leave(view, Counter::kRawChecksum);
  const Record record = encode(payload_of(frame, view), decision.lead);
  if (record.empty()) return leave(view, Counter::kRawNoGain);
  if (!streams_.remember(decision, segment, record)) return leave(view, Counter::kRawNoMemory);
  return record;
}

// Returns the record for a retransmission, if there is one. Bytes that have been on the wire keep the values that they
// had there.
Accelerator::Record Accelerator::send_again(const Frame& frame, const PacketView& view, const Segment& segment,
                                            const TcpStreams::Decision& decision, bool restored, Nanos now) noexcept {
  if (!checksums_right(frame.data, view)) return leave(view, Counter::kRawChecksum);
  const uint32_t ip = view.key.destination_ip;
  if (restored && streams_.stuck(decision, peers_.answers_since(ip, now), now)) {
    // Hellos arrive and compressed segments do not, so something on the path does not let them pass.
    counters_.add(Counter::kBlocked);
    streams_.give_up(decision);
    peers_.block(ip, now);
  }
  if (restored && may_compress(view)) {
    const size_t bytes = streams_.again(decision, segment, scratch_);
    if (bytes != 0) {
      counters_.add(Counter::kResent);
      return {scratch_.data(), bytes};
    }
  }
  if (streams_.overwrite(decision, segment, payload_of(frame, view))) {
    set_l4_checksum(frame.data, view);
    counters_.add(Counter::kOverwritten);
  }
  return leave(view, Counter::kRawSentBefore);
}

}  // namespace gradlane::accel
