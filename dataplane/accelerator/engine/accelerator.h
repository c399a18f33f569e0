// accelerator.h - the engine of accelerator mode, which handles each frame between host and wire (worker thread only)
//
// An unmodified program marks its packets with a ToS value. The engine compresses their payload, as a NIC with the
// engine of INCEPTIONN would (Li et al., MICRO 2018). It uses no DPDK, no clock and no I/O. docs/accelerator.md has the
// format, and the reason why TCP stays correct.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/counter_set.h"
#include "base/time.h"
#include "compress/codec.h"
#include "config/config.h"
#include "dataplane/accelerator/engine/bundle.h"
#include "dataplane/accelerator/engine/counters.h"
#include "dataplane/accelerator/engine/frame_io.h"
#include "dataplane/accelerator/engine/host_macs.h"
#include "dataplane/accelerator/engine/open_bundles.h"
#include "dataplane/accelerator/engine/packet_view.h"
#include "dataplane/accelerator/engine/peers.h"
#include "dataplane/accelerator/engine/tcp_streams.h"

namespace gradlane::accel {

class Accelerator {
 public:
  // Packets with a shorter payload are sent uncompressed, because compression would gain nothing.
  static constexpr size_t kLeastPayload = 64;
  static constexpr size_t kMostPayload = kMaxFrameMtu;

  struct Setup {
    Codec codec = find_codec(kDefaultLossyCodec);  // must be a codec whose CodecRow allows accelerators
    size_t mtu = 1500;                             // MTU of IP, at most kMostPayload
    uint8_t tos_compressed = 0x28;
    uint8_t tos_wire = 0x30;
    uint16_t udp_port = 18400;  // UDP port of hellos
    Nanos hold = 0;             // longest time that a packet waits for others to share its frame; 0: it does not wait
    TcpStreams::Setup streams{};
    uint64_t seed = 0;  // random number that makes hashes and nonces unpredictable
  };
  // Allocates all memory that the engine needs. The object itself is large too: keep it on the heap.
  Accelerator(const Setup& setup, FrameIo& io);
  Accelerator(const Accelerator&) = delete;
  Accelerator& operator=(const Accelerator&) = delete;

  // Both take ownership of the frame. Frames of one side must be passed in the order in which they arrived.
  void from_host(Frame frame, Nanos now) noexcept;
  void from_wire(Frame frame, Nanos now) noexcept;
  // Sends bundles whose wait is over and hellos to peers, and forgets old connections. Call it after each round of
  // polls.
  void poll(Nanos now) noexcept;
  // Returns the time at which poll() must be called to send a bundle. kNever if no bundle waits: then calls that are
  // about 10 ms apart are enough.
  [[nodiscard]] Nanos deadline() const noexcept { return bundles_.deadline(); }
  // Sends all packets that wait in bundles. Call it before the engine is destroyed.
  void flush() noexcept { bundles_.close_all(); }

  [[nodiscard]] const Counters& counters() const noexcept { return counters_; }
  [[nodiscard]] const TcpStreams& streams() const noexcept { return streams_; }

  // ---- Any thread: counters that were published up to about 100 ms ago, and the present state of peers.
  [[nodiscard]] uint64_t published(Counter counter) const noexcept { return published_[counter]; }
  [[nodiscard]] uint64_t published(StreamFigure figure) const noexcept { return published_streams_[figure]; }
  // Calls visit(CounterValue) for all counters of the engine, of damaged bundles ("bundle_...") and of streams
  // ("stream_...").
  template <class Visit>
  void for_each_published(Visit visit) const {
    published_.for_each(visit);
    published_faults_.for_each(visit);
    published_streams_.for_each(visit);
  }
  [[nodiscard]] const Peers& peers() const noexcept { return peers_; }

 private:
  void publish() noexcept;

  [[nodiscard]] bool marked(const PacketView& view) const noexcept {
    return view.layer != Layer::kOther && (view.tos & ~3) == setup_.tos_compressed;
  }
  [[nodiscard]] bool on_wire(const PacketView& view) const noexcept {
    return view.layer != Layer::kOther && (view.tos & ~3) == setup_.tos_wire;
  }
  [[nodiscard]] static Segment segment_of(const uint8_t* frame, const PacketView& view) noexcept;

  // ---- Host to wire, outbound.cc
  // Each returns the record that is sent instead of the payload. The record is in scratch_. If it is empty, the frame
  // is sent without a record, with the bytes that it has then.
  using Record = std::span<const uint8_t>;
  [[nodiscard]] Record record_of_marked_udp(const Frame& frame, const PacketView& view, Nanos now) noexcept;
  [[nodiscard]] Record record_of_tcp(const Frame& frame, const PacketView& view, Nanos now) noexcept;
  [[nodiscard]] Record compress_fresh(const Frame& frame, const PacketView& view, const Segment& segment,
                                      const TcpStreams::Decision& decision) noexcept;
  [[nodiscard]] Record send_again(const Frame& frame, const PacketView& view, const Segment& segment,
                                  const TcpStreams::Decision& decision, bool restored, Nanos now) noexcept;
  [[nodiscard]] Record encode(std::span<const uint8_t> payload, unsigned lead) noexcept;
  // counts `why` if the packet is marked; returns an empty record
  [[nodiscard]] Record leave(const PacketView& view, Counter why) noexcept;
  [[nodiscard]] bool restores(const Frame& frame, const PacketView& view, Nanos now) noexcept {
    return peers_.restores(frame.data, view.key.destination_ip, now);
  }
  [[nodiscard]] bool escape(const Frame& frame, const PacketView& view) noexcept;
  [[nodiscard]] std::span<uint8_t> payload_of(const Frame& frame, const PacketView& view) const noexcept {
    return {frame.data + view.payload, view.payload_bytes};
  }

  // ---- Wire to host, inbound.cc
  // Returns false for an ordinary packet, which the caller must handle.
  [[nodiscard]] bool handle_bundle(Frame frame, const PacketView& view, Nanos now) noexcept;
  void handle_hello(Frame frame, const PacketView& view, Nanos now) noexcept;
  void restore_all(Nanos now) noexcept;  // restores the packets of all records of reader_, and sends them to the host
  void hear_segment(const Frame& frame, const PacketView& view, bool checked, Nanos now) noexcept;
  void ask_peers(Nanos now) noexcept;

  const Setup setup_;
  FrameIo& io_;
  Counters counters_;
  CounterSet<BundleFault> faults_;
  Peers peers_;
  HostMacs host_macs_;
  TcpStreams streams_;
  OpenBundles bundles_;
  BundleReader reader_;
  Nanos sweep_at_ = 0;
  std::array<uint8_t, kMostPayload> scratch_{};
  CounterSnapshot<Counter> published_;  // its interval decides when all three snapshots are published
  CounterSnapshot<BundleFault> published_faults_;
  CounterSnapshot<StreamFigure> published_streams_;
};

}  // namespace gradlane::accel
