// outbox.h - the open packets, which are being filled for one neighbour or for all
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/time.h"
#include "collectives/counters.h"
#include "collectives/exchange/coder.h"
#include "collectives/exchange_config.h"
#include "collectives/packet_io.h"
#include "collectives/wire.h"

namespace gradlane {

// Runs are appended to an open packet until it is full, and the rest goes to the head of the next packet. If every
// packet were one run, a block that grows or shrinks in a hop would leave packets half empty. A run that continues the
// last one is joined with it (Coder::join). Otherwise packets would hold more and smaller runs after each hop. Each
// channel has one open packet: partial sums, results that begin here, results of other ranks that are passed on, and
// control. Results are relayed as whole packets, so all results in one packet end at the same rank.
class Outbox {
 public:
  enum Channel : uint8_t { kSums, kResults, kForwarded, kControl, kChannels };

  static constexpr std::array kData = {kSums, kResults, kForwarded};

  // `out`: a link, or a sink for several links.
  Outbox(PacketSink& out, PacketIo& io, Counters& counters, const ExchangeConfig& config)
      : out_(out),
        io_(io),
        counters_(counters),
        mtu_(config.mtu),
        pad_from_(config.pad ? mtu_ - mtu_ / kPadding : mtu_),
        crc_(config.crc_of_data) {}

  // Gives back all buffers.
  void reset() noexcept;

  // The place where the next elements of a run may be written. It has no bytes if the packet is full and the link
  // cannot take it, or if there is no buffer. Otherwise it has at least Coder::least_room() bytes.
  struct Place {
    std::span<uint8_t> bytes;
    size_t elements = 0;  // limit of elements; a multiple of the cut
    bool joins = false;   // the elements continue the last run
  };
  // Returns a place for the run that `run` describes; its count and bytes are ignored. Place::elements is at least
  // `elements`, but the bytes may suffice for fewer. `sink`: rank where the results end. `begins_run`: begins a new
  // run, even if the elements continue the last one.
  [[nodiscard]] Place reserve(Channel channel, const RunHeader& run, const Coder& coder, size_t elements, unsigned sink,
                              Nanos now, bool begins_run = false) noexcept;
  // Sends the open packet and begins a new one. Call it if nothing fitted into the place. Returns false if the open
  // packet cannot be sent. Also returns false if it is empty, because then no packet has more space.
  [[nodiscard]] bool begin_next(Channel channel, Nanos now) noexcept;
  // Adds `elements` elements, which were written to `place` as a block of `bytes` bytes. Returns how much longer the
  // packet is.
  size_t commit(Channel channel, const Place& place, RunHeader run, const Coder& coder, size_t elements,
                size_t bytes) noexcept;

  // Adds a run without elements to the control channel. Returns false if the packet has no space and cannot be sent.
  [[nodiscard]] bool control(RunHeader run, std::span<const uint8_t> payload, Nanos now) noexcept;

  // Sends the open packet of a channel if it holds something and the link takes it.
  void flush(Channel channel, Nanos now) noexcept;
  [[nodiscard]] bool holds(Channel channel) const noexcept { return open_[channel].last != 0; }
  // Returns whether no open packet holds anything.
  [[nodiscard]] bool idle() const noexcept { return held_ == 0; }
  // Returns whether nothing more can go into the open packet.
  [[nodiscard]] bool full(Channel channel) const noexcept { return open_[channel].elements == kMaxRunElements; }
  // Returns whether the owner had no buffer since the last try_again().
  [[nodiscard]] bool starved() const noexcept { return starved_; }
  void try_again() noexcept { starved_ = false; }
  // Returns when the oldest data was put into the open packet; kNever if it holds nothing.
  [[nodiscard]] Nanos held_since(Channel channel) const noexcept {
    return holds(channel) ? open_[channel].since : kNever;
  }

 private:
  static constexpr size_t kPadding = 16;  // padding is at most 1 / kPadding of a packet

  struct Open {
    Packet packet;
    size_t bytes = 0;
    size_t last = 0;  // offset of the last run's header; 0: the packet is empty
    size_t elements = 0;
    RunHeader run{};  // copy of the last run's header
    unsigned sink = 0;
    Nanos since = 0;
  };

  [[nodiscard]] bool begin(Channel channel, unsigned sink, Nanos now) noexcept;
  void fill_up(Open& open) const noexcept;
  [[nodiscard]] static bool goes_on(const Open& open, const RunHeader& run, const Coder& coder) noexcept;

  PacketSink& out_;
  PacketIo& io_;
  Counters& counters_;
  const size_t mtu_;
  const size_t pad_from_;
  const bool crc_;     // packets have a CRC of all their bytes
  unsigned held_ = 0;  // open packets that hold something
  bool starved_ = false;
  std::array<Open, kChannels> open_{};
};

}  // namespace gradlane
