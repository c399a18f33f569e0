// open_bundles.h - compressed packets that wait for more packets of their flow, to share a frame (worker thread only)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/time.h"
#include "compress/codec.h"
#include "dataplane/accelerator/engine/bundle.h"
#include "dataplane/accelerator/engine/counters.h"
#include "dataplane/accelerator/engine/frame_io.h"
#include "dataplane/accelerator/engine/packet_view.h"

namespace gradlane::accel {

// A bundle is never longer than its first packet was. It is sent to the wire when it is full, or when `hold` has passed
// since its first packet arrived. To keep the order within a flow, it is also sent before a packet of its flow that
// cannot be added to it. Up to kSlots flows have an open bundle at a time. If one more flow needs a bundle, the oldest
// bundle is sent.
class OpenBundles {
 public:
  static constexpr size_t kSlots = 16;

  // `hold` is the longest wait of a bundle. If it is 0, every packet is sent at once, in its own frame.
  struct Setup {
    Codec codec;
    uint8_t tos_wire;
    Nanos hold;
  };
  OpenBundles(const Setup& setup, FrameIo& io, Counters& counters) noexcept
      : setup_(setup), io_(io), counters_(counters) {}

  // Takes the frame. `record` is the compressed form of its payload.
  void add(const Frame& frame, const PacketView& view, std::span<const uint8_t> record, Nanos now) noexcept;
  // Sends the open bundle of that flow, if there is one. Call it before another packet of the flow is sent.
  void close(const FlowKey& key) noexcept {
    if (open_ != 0) close_found(key);
  }
  // Sends the bundles that have waited for `hold`.
  void close_due(Nanos now) noexcept;
  void close_all() noexcept;
  // Returns the time at which close_due() has something to do. kNever: no bundle is open.
  [[nodiscard]] Nanos deadline() const noexcept;

 private:
  // An open bundle. Slots are in the order in which they were opened.
  struct Slot {
    BundleWriter writer;
    Frame frame;
    Nanos due = 0;
  };
  [[nodiscard]] Slot* find(const FlowKey& key) noexcept;
  void close_found(const FlowKey& key) noexcept;
  void send(Slot& slot) noexcept;
  void remove(size_t place) noexcept;

  const Setup setup_;
  FrameIo& io_;
  Counters& counters_;
  size_t open_ = 0;
  std::array<Slot, kSlots> slots_{};
};

}  // namespace gradlane::accel
