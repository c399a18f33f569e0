// egress.h - the sending side: links, the packets that are being filled for them, and when these leave (packet path)
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/time.h"
#include "collectives/counters.h"
#include "collectives/exchange/exchange.h"
#include "collectives/exchange/fanout.h"
#include "collectives/exchange/operation_state.h"
#include "collectives/exchange/outbox.h"
#include "collectives/exchange/peers.h"
#include "collectives/exchange/poll_budget.h"
#include "collectives/exchange/tracer.h"
#include "collectives/exchange_config.h"
#include "collectives/link/link.h"
#include "collectives/packet_io.h"
#include "collectives/strategy/topology.h"

namespace gradlane {

class Egress {
 public:
  // `owners`: whether blocks may have owners, whose results go to all ranks. `decoded`: as in EngineParts.
  Egress(const ExchangeConfig& config, const Topology& topology, bool owners, PacketIo& io, Counters& counters,
         const Peers& peers, PollBudget& budget, Tracer& tracer, DecodedBlocks& decoded);
  // Gives back all buffers.
  ~Egress();
  Egress(const Egress&) = delete;
  Egress& operator=(const Egress&) = delete;

  // Returns the largest number of packet buffers that an Egress holds at a time.
  [[nodiscard]] static size_t buffers(const ExchangeConfig& config, const Topology& topology, bool owners) noexcept;

  // Links are in the order of Topology::neighbours().
  [[nodiscard]] std::span<Link> links() noexcept { return links_; }
  [[nodiscard]] std::span<const Link> links() const noexcept { return links_; }
  [[nodiscard]] Link& link(size_t link) noexcept { return links_[link]; }
  [[nodiscard]] Outbox& outbox(size_t link) noexcept { return outboxes_[link]; }
  [[nodiscard]] Fanout& fanout() noexcept { return fanout_; }
  [[nodiscard]] const AllCodecTotals& codec_totals() const noexcept { return codec_totals_; }

  // Begins a new session: empties the open packets, and ends the sharing of queues.
  void reset() noexcept;
  // Adapts links and waiting times to the running operations. At most `senders` ranks send to one rank at a time, and
  // an operation has at most `blocks` blocks.
  void share(unsigned senders, unsigned blocks) noexcept;
  [[nodiscard]] bool is_shared() const noexcept { return senders_ > 1; }
  // Returns whether share() already allows for this many senders and blocks.
  [[nodiscard]] bool allows_for(unsigned senders, unsigned blocks) const noexcept {
    return senders <= senders_ && blocks <= blocks_;
  }

  // ---- Elements that an open packet waits for
  //
  // Numbers of elements that will arrive and go on in an open packet, by channel. expect() adds them. Each element is
  // subtracted later, by arrived() or by forget().
  using PerChannel = std::array<size_t, Outbox::kChannels>;
  void expect(const PerChannel& elements) noexcept;
  void forget(const PerChannel& elements) noexcept;
  void arrived(Outbox::Channel channel, size_t elements) noexcept { coming_[channel] -= elements; }
  // Notes that a link took no more own elements in this poll.
  void note_unsent(size_t link) noexcept { unsent_[link] = 1; }
  // Changes the number of this rank's blocks whose results will go to all ranks. `blocks` may be negative.
  void expect_results(int blocks) noexcept { owned_ += blocks; }

  // ---- A poll
  // Returns whether a buffer was missing for an open packet since the last poll began.
  [[nodiscard]] bool starved() const noexcept {
    return fanout_.starved() || std::ranges::any_of(outboxes_, &Outbox::starved);
  }
  void begin_poll() noexcept;
  // `more`: operations have elements left that would go into open packets.
  void end_poll(bool more, Nanos now) noexcept;
  // Returns when there is something to do after a poll at `polled_at`; kNever if there is nothing.
  [[nodiscard]] Nanos deadline(Nanos polled_at) const noexcept;

  // ---- Runs
  // Elements to be sent: `count` elements of a block from element `first` on, which lie at `data`.
  struct Source {
    unsigned block;
    size_t first;
    uint8_t* data;
    size_t count;
    bool contribution;        // they are this rank's contribution, at `data` or encoded; else they are sums or results
    bool begins_run = false;  // they begin a new run, even if they continue the last one
  };
  // Elements of a Source that were encoded after the content of the open packet.
  struct Piece {
    RunHeader header;
    Outbox::Place place;
    size_t elements = 0;  // 0: there was no space or no budget, or the neighbour does not accept elements yet
    size_t bytes = 0;

    [[nodiscard]] std::span<const uint8_t> encoded() const noexcept { return place.bytes.first(bytes); }
  };
  // Encodes as many elements as the open packet has space for. commit() makes the piece part of the packet; nothing
  // else may be encoded before that.
  [[nodiscard]] Piece encode(OperationState& it, const Step& step, const Source& from, Nanos now) noexcept;
  void commit(OperationState& it, const Step& step, const Piece& piece) noexcept;

  // Counts elements of a block that went into runs of `bytes` bytes in all. `link`: the number of links if they went to
  // all ranks.
  void count_sent(OperationState& it, Phase phase, unsigned block, size_t link, size_t bytes,
                  size_t elements) noexcept {
    if (tracer_.on()) [[unlikely]]
      tracer_.sent(it, phase, block, link, bytes);
    const size_t raw = elements * it.coder.element_bytes();
    it.outcome.sent_bytes += bytes;
    counters_.add(Counter::kRunBytes, bytes);
    counters_.add(Counter::kElementBytes, raw);
    codec_totals_[static_cast<size_t>(it.coder.codec_id())].add(bytes, raw);
  }

  // Returns the channel, and so the open packet, for a run of this step.
  [[nodiscard]] static Outbox::Channel channel_of(const Step& step) noexcept {
    if (step.phase == Phase::kReduce) return Outbox::kSums;
    return step.begins ? Outbox::kResults : Outbox::kForwarded;
  }

 private:
  void flush(size_t link, bool more, Nanos now) noexcept;
  [[nodiscard]] Nanos flush_at(size_t link, Outbox::Channel channel) const noexcept;
  void flush_results(Nanos now) noexcept;
  [[nodiscard]] Nanos flush_results_at() const noexcept;

  const ExchangeConfig& config_;
  Counters& counters_;
  const Peers& peers_;
  PollBudget& budget_;
  Tracer& tracer_;
  DecodedBlocks& decoded_;
  AllCodecTotals codec_totals_{};
  std::vector<Link> links_;
  std::vector<Outbox> outboxes_;
  Fanout fanout_;
  PerChannel coming_{};
  std::vector<uint8_t> unsent_;  // by link: set by note_unsent() in this poll
  int owned_ = 0;
  unsigned senders_ = 1;
  unsigned blocks_ = 1;
};

}  // namespace gradlane
