// lane.h - one rank on one lane: its exchange, its trainers' operations, and the routes to its neighbours (worker
// thread)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/counter_set.h"
#include "base/published.h"
#include "base/time.h"
#include "collectives/exchange/exchange.h"
#include "dataplane/device/packet_pool.h"
#include "dataplane/lane/port_queue.h"
#include "dataplane/secure/secure_link.h"
#include "dataplane/trainer/trainer_ops.h"

namespace gradlane {

// The ring as one rank saw it about 100 ms ago.
struct RingSnapshot {
  enum class State : uint8_t { kUnknown, kReady, kIncomplete, kRefused };
  State state = State::kUnknown;
  unsigned missing = 0;   // kIncomplete: first rank that nothing is known of
  Failure refused;        // kRefused: cause
  uint64_t failures = 0;  // number of operations that have failed
  Failure failed;         // cause of the last of these failures, or of a later one
  PastFailures before;    // earlier causes
  bool operator==(const RingSnapshot&) const = default;
};

// A link to a neighbour's rank, as it was about 100 ms ago.
struct LinkSnapshot : LinkStatus {
  Nanos heard = 0;              // time of its last packet; 0: none yet
  uint64_t tagged = 0;          // number of its packets that had a tag although this node has no key
  std::optional<uint16_t> key;  // SecureLink::neighbour_key()
};

// These terms belong together:
//
//   node        a machine of the ring, or one of several nodes in one process. It has ports, and lanes with numbers
//               0, 1, ... as `workers.lanes` says. Tensors are divided among these numbers; each part stays on its own.
//   rank        a member of an exchange: a trainer, or all trainers of a node that reduce locally.
//   Lane        the part of one rank on one lane number: its own exchange, its trainers' operations of that number,
//               its routes to the neighbours' ranks. So a node has (lane numbers * ranks of the node) objects of this
//               class. Lanes of different numbers exchange no packets; lanes of one number hand packets to one another.
//   PortQueue   one queue pair of a port. Packets for lane number k leave by queue k % queues, and come to it if the
//               port can steer them. Their UDP port tells their rank: udp_port + number * ranks + rank in the node.
//   Worker      a thread. It has lane number k and queue k of every port if k % workers is its own number, so that
//               two workers never touch the same lane.
//
// Worker thread only, except for construction and connect().
class Lane final : public PacketIo {
 public:
  Lane(const ExchangeConfig& config, const TrainerOpsSetup& setup, PacketPool& pool, ControlChannel& channel);
  // Frees all buffers.
  ~Lane() override;

  // Connects a neighbour on another node: packets go through a port.
  // Packets are in envelopes if `secure` is not null.
  void connect(unsigned rank, PortQueue& queue, const Neighbour& neighbour, const Flow& flow,
               std::unique_ptr<SecureLink> secure);
  // Connects another rank on this lane of this node.
  void connect(unsigned rank, Lane& other);
  // Returns how many packets of other ranks of this node may wait here, for a given number of links to such ranks. Each
  // packet waits in a buffer of the pool.
  [[nodiscard]] static size_t inbox_size(size_t links) noexcept;

  [[nodiscard]] bool knows(unsigned from) const noexcept { return link_of(from) < routes_.size(); }
  // Returns the end of the link to this rank; null if its packets have no envelopes, or the rank is no neighbour.
  [[nodiscard]] SecureLink* secure_link(unsigned rank) const noexcept {
    return knows(rank) ? routes_[link_of(rank)].secure.get() : nullptr;
  }
  // Takes a packet from the neighbour with this rank. The buffer belongs to the lane now.
  void receive(unsigned from, const Packet& packet, size_t bytes, Nanos now) noexcept;

  // Reports that a packet from this rank was dropped because no class has its ToS byte.
  void note_wrong_tos(unsigned from, uint8_t tos, Nanos now) noexcept {
    exchange_.note_wrong_tos(from, tos, now);
    received_ = true;
  }

  // Returns true if anything moved.
  bool poll(Nanos now) noexcept;
  // Makes a log for traces, which the caller stores in the control channel. Any thread.
  [[nodiscard]] std::unique_ptr<TraceLog> make_trace(size_t words) const;
  [[nodiscard]] Nanos deadline() const noexcept { return exchange_.deadline(); }
  [[nodiscard]] bool in_flight() const noexcept { return ops_.in_flight(); }
  [[nodiscard]] bool fall_asleep() noexcept { return inbox_count_ == 0 && ops_.fall_asleep(); }
  void wake_up() noexcept { ops_.wake_up(); }

  [[nodiscard]] const Exchange& exchange() const noexcept { return exchange_; }
  // Publishes figures for other threads. It runs every 100 ms, and at the end, when the worker is stopped.
  void publish() noexcept;
  // Returns the counters as of about 100 ms ago. Any thread.
  [[nodiscard]] const CounterSnapshot<Counter>& published() const noexcept { return published_; }
  // Returns the state of the ring as of about 100 ms ago. Any thread.
  [[nodiscard]] RingSnapshot ring_snapshot() const noexcept { return ring_.read(); }
  // These return the number of links, each link, and totals, as of about 100 ms ago. Any thread.
  [[nodiscard]] size_t links() const noexcept { return routes_.size(); }
  [[nodiscard]] LinkSnapshot link_snapshot(size_t link) const noexcept { return links_[link].read(); }
  [[nodiscard]] AllCodecTotals codec_totals() const noexcept { return codecs_.read(); }
  [[nodiscard]] OperationTimes operation_times() const noexcept { return times_.read(); }
  [[nodiscard]] unsigned rank() const noexcept { return rank_; }

  // ---- PacketIo
  [[nodiscard]] Packet allocate() noexcept override;
  void release(Packet packet) noexcept override;
  [[nodiscard]] bool transmit(unsigned rank, Packet packet, size_t bytes) noexcept override;
  [[nodiscard]] bool is_read(unsigned rank, Packet packet) const noexcept override;
  [[nodiscard]] size_t path_bytes(unsigned rank) const noexcept override;

 private:
  struct Route {
    unsigned rank = 0;
    PortQueue* queue = nullptr;
    const Neighbour* neighbour = nullptr;
    Flow flow;
    Lane* other = nullptr;
    std::unique_ptr<SecureLink> secure;
    Nanos heard = 0;
    uint64_t tagged = 0;
  };
  static constexpr uint8_t kNoLink = 255;  // a rank has 255 others at most: links 0 to 254
  static_assert(kMaxWorld <= 256);
  struct InboxPacket {
    unsigned from = 0;
    Packet packet;
    size_t bytes = 0;
  };

  [[nodiscard]] uint8_t link_of(unsigned rank) const noexcept { return rank < kMaxWorld ? link_of_[rank] : kNoLink; }
  void refuse_doubled(Nanos now) noexcept;
  void tell_keys(Nanos now) noexcept;
  [[nodiscard]] bool deliver(unsigned from, const Packet& packet, size_t bytes) noexcept;
  [[nodiscard]] bool read_inbox(Nanos now) noexcept;

  void trace_packet(const Packet& packet, size_t bytes, unsigned rank, uint64_t flags) noexcept;

  const unsigned rank_;
  PacketPool& pool_;
  const ControlChannel& channel_;
  TraceLog* trace_ = nullptr;               // log of the trace that is being taken; else null
  std::vector<Route> routes_;               // routes in the order of exchange_.neighbours()
  std::array<uint8_t, kMaxWorld> link_of_;  // number of the route by rank
  Nanos doubled_at_ = 0;                    // time of the next check whether a neighbour is two machines
  // Links to other ranks of this node, and a FIFO of packets from them.
  size_t local_links_ = 0;
  std::vector<InboxPacket> inbox_;
  size_t inbox_first_ = 0;
  size_t inbox_count_ = 0;
  bool received_ = false;    // something has been received since the last poll
  unsigned looked_for_ = 0;  // rank whose packet made a trace read the clock last
  Exchange exchange_;
  TrainerOps ops_;
  // The worker writes these, other threads read them.
  CounterSnapshot<Counter> published_;
  Published<RingSnapshot> ring_;
  std::vector<Published<LinkSnapshot>> links_;
  Published<AllCodecTotals> codecs_;
  Published<OperationTimes> times_;
};

}  // namespace gradlane
