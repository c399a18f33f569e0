// outbox.h - the packets that are being filled, for one neighbour or for all
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/time.h"
#include "collectives/counters.h"
#include "collectives/exchange/coder.h"
#include "collectives/packet_io.h"
#include "collectives/wire.h"

namespace gradlane {

// A block that grows or shrinks in a hop would leave packets half empty, if every packet were one run. So runs are
// appended to an open packet until it is full, and what did not fit goes to the head of the next one. A run that goes
// on where the last one ended is joined with it (Coder::join), or packets would hold ever more and smaller runs from
// hop to hop. There is one open packet for each channel: partial sums, results whose way begins here, results that were
// put off on their way, and control. Results are relayed as whole packets, so all in one packet end at the same rank.
class Outbox {
 public:
  enum Channel : uint8_t { kSums, kResults, kPassing, kControl, kChannels };

  static constexpr std::array kData = {kSums, kResults, kPassing};

  // `out`: a link, or what stands for several. `pad`: packets of data that are nearly full are made as long as full
  // ones.
  Outbox(PacketSink& out, PacketIo& io, Counters& counters, size_t mtu, bool pad)
      : out_(out), io_(io), counters_(counters), mtu_(mtu), pad_from_(pad ? mtu - mtu / kPadding : mtu) {}

  // Gives back all buffers.
  void reset() noexcept;

  // Where the next elements of a run may be written; no bytes if the packet is full and the link cannot take it, or if
  // there is no buffer. There are Coder::least_room() of them otherwise.
  struct Place {
    std::span<uint8_t> bytes;
    size_t elements = 0;  // at most: up to a cut
    bool joins = false;   // goes on the last run
  };
  // `run` says which run it is: its count and bytes do not matter. There is place for at least `elements` of them, as
  // far as their number goes. `sink`: where results end. `apart`: what begins here is a run of its own, even if it goes
  // on the last one.
  [[nodiscard]] Place reserve(Channel channel, const RunHeader& run, const Coder& coder, size_t elements, unsigned sink,
                              Nanos now, bool apart = false) noexcept;
  // Nothing fitted into that place: a new packet is begun, if the open one can leave. False if it cannot, or if it has
  // nothing in it, so that no packet has more room.
  [[nodiscard]] bool begin_next(Channel channel, Nanos now) noexcept;
  // `elements` were written there as a block of `bytes` bytes. Returns how much longer the packet is.
  size_t commit(Channel channel, const Place& place, RunHeader run, const Coder& coder, size_t elements,
                size_t bytes) noexcept;

  // A run without elements on the control channel; false if there is no place.
  [[nodiscard]] bool control(RunHeader run, std::span<const uint8_t> payload, Nanos now) noexcept;

  // Sends what is open, if there is something and the link takes it.
  void flush(Channel channel, Nanos now) noexcept;
  [[nodiscard]] bool holds(Channel channel) const noexcept { return open_[channel].last != 0; }
  // None of them holds anything.
  [[nodiscard]] bool idle() const noexcept { return held_ == 0; }
  // Nothing more can go into it.
  [[nodiscard]] bool full(Channel channel) const noexcept { return open_[channel].elements == kMaxRunElements; }
  // The owner had no buffer, since the last try_again().
  [[nodiscard]] bool starved() const noexcept { return starved_; }
  void try_again() noexcept { starved_ = false; }
  // When the oldest data was put into an open packet; kNever if there is none.
  [[nodiscard]] Nanos held_since(Channel channel) const noexcept {
    return holds(channel) ? open_[channel].since : kNever;
  }

 private:
  static constexpr size_t kPadding = 16;  // at most so great a part of a packet

  struct Open {
    Packet packet;
    size_t bytes = 0;
    size_t last = 0;  // where the last run's header is; 0: nothing open
    size_t elements = 0;
    RunHeader run{};  // its copy
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
  unsigned held_ = 0;  // open packets that hold something
  bool starved_ = false;
  std::array<Open, kChannels> open_{};
};

}  // namespace gradlane
