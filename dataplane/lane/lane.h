// lane.h - one rank on one lane: its exchange, its trainers' operations, and the ways to its neighbours
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/counter_set.h"
#include "base/published.h"
#include "base/time.h"
#include "collectives/exchange/exchange.h"
#include "dataplane/device/packet_pool.h"
#include "dataplane/lane/port_queue.h"
#include "dataplane/trainer/trainer_ops.h"

namespace gradlane {

// The ring as one rank saw it some 100 ms ago.
struct RingSnapshot {
  enum class State : uint8_t { kUnknown, kWhole, kIncomplete, kRefused };
  State state = State::kUnknown;
  unsigned missing = 0;   // kIncomplete: the first rank that nothing is known of
  Failure refused;        // kRefused
  uint64_t failures = 0;  // so many operations have failed,
  Failure failed;         //   the last of them, or one after it, for this reason,
  PastFailures before;    //   and those before for these
  bool operator==(const RingSnapshot&) const = default;
};

// A link to a neighbour's rank, as it was then.
struct LinkSnapshot : LinkStatus {
  Nanos heard = 0;      // when a packet of it came last; 0: none yet
  uint64_t tagged = 0;  // packets of it with a tag, where this node has no key
};

// How the words go together:
//
//   node        a machine of the ring, or one of several in one process. It has ports, and lanes with numbers 0, 1, ...
//               as `workers.lanes` says: tensors are divided among these numbers, and each part stays on its own.
//   rank        who takes part in an exchange: a trainer, or all trainers of a node that reduce locally.
//   Lane        what one rank has on one lane number: its own exchange, its trainers' operations of that number, its
//               ways to the neighbours' ranks. So a node has (lane numbers * ranks of the node) objects of this class;
//               those of different numbers never meet, those of one number hand packets to one another.
//   PortQueue   one queue pair of a port. Packets for lane number k leave by queue k % queues, and come to it where the
//               port can steer them. Their UDP port says whose they are: udp_port + number * ranks + rank in the node.
//   Worker      a thread. It has lane number k and queue k of every port if k % workers is its own number, so that
//               nothing of a lane is ever touched by two of them.
//
// Worker thread only, but for construction and connections.
class Lane final : public PacketIo {
 public:
  Lane(const ExchangeConfig& config, const TrainerOpsSetup& setup, PacketPool& pool, LaneDesk& desk);
  // Gives back all buffers.
  ~Lane() override;

  // How packets get to a neighbour: to another node through a port,
  void connect(unsigned rank, PortQueue& queue, const Neighbour& neighbour, const Flow& flow);
  // or to another rank of this lane of this node.
  void connect(unsigned rank, Lane& other);
  // Packets of other ranks of this node that may wait here, each in a buffer of the pool, where it has links to so
  // many.
  [[nodiscard]] static size_t inbox_size(size_t links) noexcept;

  [[nodiscard]] bool knows(unsigned from) const noexcept { return link_of(from) < routes_.size(); }
  // A packet from the neighbour with this rank; the buffer is the lane's now.
  void receive(unsigned from, const Packet& packet, size_t bytes, Nanos now) noexcept;

  // A packet of it came with this ToS byte, which no class has, and was dropped.
  void complain(unsigned from, uint8_t tos, Nanos now) noexcept {
    exchange_.complain(from, tos, now);
    received_ = true;
  }

  // True if anything moved.
  bool poll(Nanos now) noexcept;
  [[nodiscard]] std::unique_ptr<TraceLog> make_trace(size_t words) const;  // any thread; the desk has it from then on
  [[nodiscard]] Nanos deadline() const noexcept { return exchange_.deadline(); }
  [[nodiscard]] bool in_flight() const noexcept { return ops_.in_flight(); }
  [[nodiscard]] bool fall_asleep() noexcept { return inbox_count_ == 0 && ops_.fall_asleep(); }
  void wake_up() noexcept { ops_.wake_up(); }

  [[nodiscard]] const Exchange& exchange() const noexcept { return exchange_; }
  // Others may read figures as they are now: every 100 ms, and at the end, when the worker is stopped.
  void publish() noexcept;
  // Any thread: as of some 100 ms ago.
  [[nodiscard]] const CounterSnapshot<Counter>& published() const noexcept { return published_; }
  // Any thread: how the ring looked then.
  [[nodiscard]] RingSnapshot ring_snapshot() const noexcept { return ring_.read(); }
  // Any thread, too: its neighbours' ranks, and the links to them as they were then.
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
    Nanos heard = 0;
    uint64_t tagged = 0;
  };
  static constexpr uint8_t kNoLink = 255;  // a rank has 255 others at most: links 0 to 254
  static_assert(kMaxWorld <= 256);
  struct Letter {
    unsigned from = 0;
    Packet packet;
    size_t bytes = 0;
  };

  [[nodiscard]] uint8_t link_of(unsigned rank) const noexcept { return rank < kMaxWorld ? link_of_[rank] : kNoLink; }
  void refuse_doubled(Nanos now) noexcept;
  [[nodiscard]] bool deliver(unsigned from, const Packet& packet, size_t bytes) noexcept;
  [[nodiscard]] bool read_inbox(Nanos now) noexcept;

  void trace_packet(const Packet& packet, size_t bytes, unsigned rank, uint64_t flags) noexcept;

  const unsigned rank_;
  PacketPool& pool_;
  const LaneDesk& desk_;
  TraceLog* trace_ = nullptr;               // while one is taken
  std::vector<Route> routes_;               // as exchange_.neighbours()
  std::array<uint8_t, kMaxWorld> link_of_;  // by rank: number of its route
  Nanos doubled_at_ = 0;                    // when it is asked next whether a neighbour is two machines
  // From other ranks of this node; FIFO.
  size_t local_links_ = 0;
  std::vector<Letter> inbox_;
  size_t inbox_first_ = 0;
  size_t inbox_count_ = 0;
  bool received_ = false;    // since the last poll
  unsigned looked_for_ = 0;  // whose packet a trace has last looked at the clock for
  Exchange exchange_;
  TrainerOps ops_;
  // Worker writes, others read.
  CounterSnapshot<Counter> published_;
  Published<RingSnapshot> ring_;
  std::vector<Published<LinkSnapshot>> links_;
  Published<AllCodecTotals> codecs_;
  Published<OperationTimes> times_;
};

}  // namespace gradlane
