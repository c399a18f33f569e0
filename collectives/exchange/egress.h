// egress.h - runs on their way out: links, the packets that are being filled for them, when these leave (packet path)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/time.h"
#include "collectives/counters.h"
#include "collectives/exchange/exchange.h"
#include "collectives/exchange/fanout.h"
#include "collectives/exchange/outbox.h"
#include "collectives/exchange/peers.h"
#include "collectives/exchange/poll_budget.h"
#include "collectives/exchange/running.h"
#include "collectives/exchange/tracer.h"
#include "collectives/exchange_config.h"
#include "collectives/link/link.h"
#include "collectives/packet_io.h"
#include "collectives/strategy/topology.h"

namespace gradlane {

class Egress {
 public:
  // `owners`: blocks may have owners, whose results go to all.
  Egress(const ExchangeConfig& config, const Topology& topology, bool owners, PacketIo& io, Counters& counters,
         const Peers& peers, PollBudget& budget, Tracer& tracer);
  // Gives back all buffers.
  ~Egress();
  Egress(const Egress&) = delete;
  Egress& operator=(const Egress&) = delete;

  // Packet buffers that it holds at most.
  [[nodiscard]] static size_t buffers(const ExchangeConfig& config, const Topology& topology, bool owners) noexcept;

  // Links are in the order of Topology::neighbours().
  [[nodiscard]] std::span<Link> links() noexcept { return links_; }
  [[nodiscard]] std::span<const Link> links() const noexcept { return links_; }
  [[nodiscard]] Link& link(size_t link) noexcept { return links_[link]; }
  [[nodiscard]] Outbox& outbox(size_t link) noexcept { return outboxes_[link]; }
  [[nodiscard]] Fanout& fanout() noexcept { return fanout_; }
  [[nodiscard]] const AllCodecTotals& codec_totals() const noexcept { return codec_totals_; }

  // Links are new: nothing is in open packets, and nobody shares a queue.
  void reset() noexcept;
  // Divides the links for the operations that run: at most `senders` ranks send to one at a time, and an operation has
  // at most `blocks` blocks.
  void share(unsigned senders, unsigned blocks) noexcept;
  [[nodiscard]] bool is_shared() const noexcept { return senders_ > 1; }
  // Whether share() already allows for so many senders and blocks.
  [[nodiscard]] bool allows_for(unsigned senders, unsigned blocks) const noexcept {
    return senders <= senders_ && blocks <= blocks_;
  }

  // ---- What an open packet waits for
  // Elements that will arrive and go on in an open packet. Each one ends in arrived() or in forget().
  using PerChannel = std::array<size_t, Outbox::kChannels>;
  void expect(const PerChannel& elements) noexcept;
  void forget(const PerChannel& elements) noexcept;
  void arrived(Outbox::Channel channel, size_t elements) noexcept { coming_[channel] -= elements; }
  // A link took no more of the own elements in this poll.
  void note_unsent(size_t link) noexcept { unsent_[link] = 1; }
  // Blocks of this rank, more or fewer than before, have results that will go to all.
  void expect_results(int blocks) noexcept { owned_ += blocks; }

  // ---- A poll
  void begin_poll() noexcept;
  // `more`: links have own elements to send.
  void end_poll(bool more, Nanos now) noexcept;
  // When it has something to do after a poll at that time; kNever if it has not.
  [[nodiscard]] Nanos deadline(Nanos polled_at) const noexcept;

  // ---- Runs
  // Elements that are to be sent: of a block, from element `first` on, at `data`.
  struct Source {
    unsigned block;
    size_t first;
    uint8_t* data;
    size_t count;
    bool contribution;   // by this rank; else sums or results
    bool apart = false;  // what begins here is a run of its own
  };
  // Some of them, encoded behind what is in the open packet.
  struct Piece {
    RunHeader header;
    Outbox::Place place;
    size_t elements = 0;  // 0: there was no room, or the neighbour does not take them yet
    size_t bytes = 0;

    [[nodiscard]] std::span<const uint8_t> encoded() const noexcept { return place.bytes.first(bytes); }
  };
  // Encodes as many elements as there is room for. The piece belongs to the packet once it has been committed, and
  // until then nothing else may be encoded.
  [[nodiscard]] Piece encode(Running& it, const Step& step, const Source& from, Nanos now) noexcept;
  void commit(Running& it, const Step& step, const Piece& piece) noexcept;

  // Elements of a block have gone into runs of so many bytes. `link`: as many as there are: to all.
  void count_sent(Running& it, Phase phase, unsigned block, size_t link, size_t bytes, size_t elements) noexcept {
    if (tracer_.on()) [[unlikely]]
      tracer_.sent(it, phase, block, link, bytes);
    const size_t raw = elements * it.coder.element_bytes();
    it.outcome.sent_bytes += bytes;
    counters_.add(Counter::kRunBytes, bytes);
    counters_.add(Counter::kElementBytes, raw);
    codec_totals_[static_cast<size_t>(it.coder.codec_id())].add(bytes, raw);
  }

  // The open packet that a run of this step goes into.
  [[nodiscard]] static Outbox::Channel channel_of(const Step& step) noexcept {
    if (step.phase == Phase::kReduce) return Outbox::kSums;
    return step.begins ? Outbox::kResults : Outbox::kPassing;
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
  AllCodecTotals codec_totals_{};
  std::vector<Link> links_;
  std::vector<Outbox> outboxes_;
  Fanout fanout_;
  PerChannel coming_{};
  std::vector<uint8_t> unsent_;  // by link
  int owned_ = 0;
  unsigned senders_ = 1;
  unsigned blocks_ = 1;
};

}  // namespace gradlane
