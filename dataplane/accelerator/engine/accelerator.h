// accelerator.h - the engine of accelerator mode: what becomes of each frame between host and wire (worker thread only)
//
// An unmodified program marks its packets with a ToS value, and this compresses their payload as a NIC would that has
// the engine of INCEPTIONN (Li et al., MICRO 2018). No DPDK, no clock, no I/O in here. docs/accelerator.md has the
// format, and why TCP stays sound.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/counter_set.h"
#include "base/time.h"
#include "compress/codec.h"
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
  // A payload below this is not worth looking at.
  static constexpr size_t kLeastPayload = 64;
  static constexpr size_t kMostPayload = 9000;

  struct Setup {
    Codec codec = find_codec(kDefaultLossyCodec);  // one that is fit for it: CodecRow
    size_t mtu = 1500;                             // of IP, at most kMostPayload
    uint8_t tos_compressed = 0x28;
    uint8_t tos_wire = 0x30;
    uint16_t udp_port = 18400;  // of hellos
    Nanos hold = 0;             // how long a packet may wait for others to share its frame with; 0: it does not
    TcpStreams::Setup streams{};
    uint64_t seed = 0;  // a random number: hashes shall not be predictable
  };
  // Allocates everything. Large: keep it on the heap.
  Accelerator(const Setup& setup, FrameIo& io);
  Accelerator(const Accelerator&) = delete;
  Accelerator& operator=(const Accelerator&) = delete;

  // Take the frame. In the order they came.
  void from_host(Frame frame, Nanos now) noexcept;
  void from_wire(Frame frame, Nanos now) noexcept;
  // After each round of polls: sends bundles whose time is over, asks peers, forgets old connections.
  void poll(Nanos now) noexcept;
  // When poll() is due; kNever: whenever it suits, but within 10 ms or so.
  [[nodiscard]] Nanos deadline() const noexcept { return bundles_.deadline(); }
  // At the end: nothing waits any more.
  void flush() noexcept { bundles_.close_all(); }

  [[nodiscard]] const Counters& counters() const noexcept { return counters_; }
  [[nodiscard]] const TcpStreams& streams() const noexcept { return streams_; }

  // ---- Any thread: figures as of some 100 ms ago, and peers as they are.
  [[nodiscard]] uint64_t published(Counter counter) const noexcept { return published_[counter]; }
  [[nodiscard]] uint64_t published(StreamFigure figure) const noexcept { return published_streams_[figure]; }
  // visit(CounterValue) for all counters of the engine, of damaged bundles ("bundle_...") and of streams
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
  // Each returns the record to send instead of the payload, which is in scratch_; empty: the frame goes as it is now.
  using Record = std::span<const uint8_t>;
  [[nodiscard]] Record record_of_marked_udp(const Frame& frame, const PacketView& view, Nanos now) noexcept;
  [[nodiscard]] Record record_of_tcp(const Frame& frame, const PacketView& view, Nanos now) noexcept;
  [[nodiscard]] Record compress_fresh(const Frame& frame, const PacketView& view, const Segment& segment,
                                      const TcpStreams::Decision& decision) noexcept;
  [[nodiscard]] Record send_again(const Frame& frame, const PacketView& view, const Segment& segment,
                                  const TcpStreams::Decision& decision, bool restored, Nanos now) noexcept;
  [[nodiscard]] Record encode(std::span<const uint8_t> payload, unsigned lead) noexcept;
  [[nodiscard]] Record leave(const PacketView& view, Counter why) noexcept;  // as it is
  [[nodiscard]] bool restores(const Frame& frame, const PacketView& view, Nanos now) noexcept {
    return peers_.restores(frame.data, view.key.destination_ip, now);
  }
  [[nodiscard]] bool escape(const Frame& frame, const PacketView& view) noexcept;
  [[nodiscard]] std::span<uint8_t> payload_of(const Frame& frame, const PacketView& view) const noexcept {
    return {frame.data + view.payload, view.payload_bytes};
  }

  // ---- Wire to host, inbound.cc
  // False: it is an ordinary packet, and the caller goes on with it.
  [[nodiscard]] bool handle_bundle(Frame frame, const PacketView& view, Nanos now) noexcept;
  void handle_hello(Frame frame, const PacketView& view, Nanos now) noexcept;
  void restore_all(Nanos now) noexcept;  // what reader_ has
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
  CounterSnapshot<Counter> published_;  // when they are due, so are the others
  CounterSnapshot<BundleFault> published_faults_;
  CounterSnapshot<StreamFigure> published_streams_;
};

}  // namespace gradlane::accel
