// ring.h - exchanges around a ring in one process, one of which can be timed (benchmarks only)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "base/time.h"
#include "collectives/exchange/exchange.h"
#include "collectives/packet_io.h"
#include "tools/bench/memory.h"

namespace gradlane {

// Packet buffers, all made beforehand. What was given back last is taken first, as from a lane's cache.
class BufferPool {
 public:
  BufferPool(size_t count, size_t capacity);

  [[nodiscard]] Packet take() noexcept;
  void give(Packet packet) noexcept { free_.push_back(packet.data); }
  // Those that will be taken next.
  [[nodiscard]] std::span<uint8_t* const> next(size_t most) const noexcept;

 private:
  BenchMemory memory_;
  std::vector<uint8_t*> free_;
};

struct Arrival {
  Packet packet;
  size_t bytes = 0;
  unsigned from = 0;  // rank
  bool kept = false;  // by receive()
};

// One rank. Its PacketIo does nothing but note what it is told: nothing is copied, and no buffer used again, before
// settle().
class RingNode final : public PacketIo {
 public:
  RingNode(const ExchangeConfig& config, BufferPool& pool);

  [[nodiscard]] Exchange& exchange() noexcept { return exchange_; }
  [[nodiscard]] const Exchange& exchange() const noexcept { return exchange_; }

  // What has come and was not received yet, oldest first. Elements come from the predecessor only.
  std::deque<Arrival> from_predecessor;
  std::deque<Arrival> from_successor;
  bool held = false;  // data packets of the predecessor wait

  [[nodiscard]] Packet allocate() noexcept override { return pool_.take(); }
  void release(Packet packet) noexcept override { released_.push_back(packet); }
  [[nodiscard]] bool transmit(unsigned rank, Packet packet, size_t bytes) noexcept override;

 private:
  friend class BenchRing;
  struct Sent {
    unsigned to;
    Packet packet;
    size_t bytes;
  };

  BufferPool& pool_;
  std::vector<Packet> released_;
  std::vector<Sent> sent_;
  Exchange exchange_;  // last: it gives back its buffers
};

// Ranks 0 to 3, of which kTimed is the one whose receive() and poll() the caller times. In virtual time, without loss,
// and with windows that neither delay nor time-outs shrink: how many packets are on their way is up to the caller.
class BenchRing {
 public:
  static constexpr unsigned kWorld = 4;
  static constexpr unsigned kTimed = 1;
  static constexpr unsigned kBefore = 0;   // the predecessor of kTimed
  static constexpr size_t kMaxBurst = 32;  // two bursts fill half of the window of 128 packets

  // `mtu` counts from the link header on. Throws SetupError if the ring does not come up.
  BenchRing(const Codec& codec, size_t mtu, size_t max_bytes, size_t burst);
  BenchRing(const BenchRing&) = delete;
  BenchRing& operator=(const BenchRing&) = delete;

  [[nodiscard]] RingNode& node(unsigned rank) noexcept { return *nodes_[rank]; }
  [[nodiscard]] BufferPool& pool() noexcept { return pool_; }
  [[nodiscard]] size_t burst() const noexcept { return burst_; }

  // From now on a trace is taken of kTimed, of which somebody reads what there is whenever nothing is timed.
  void trace();

  void submit(unsigned rank, const Operation& operation);
  [[nodiscard]] bool done();  // all operations; throws SetupError if one has failed

  // A moment later: gives a rank all that waits for it, in bursts with a poll behind each.
  void serve(unsigned rank);
  // The same for all ranks but kTimed, those behind it first.
  void serve_others();
  // A moment later: the next burst for kTimed, with half of the acknowledgements that its successor has sent, one per
  // burst of its own. Two bursts between each serve_others(), then, get one each.
  void take_burst(std::vector<Arrival>& burst);
  // What is timed.
  void receive(std::span<Arrival> burst) noexcept;
  void poll() noexcept {
    if (log_ != nullptr) node(kTimed).exchange().trace(*log_, now_);
    node(kTimed).exchange().poll(now_);
  }
  // Gives back what receive() did not keep.
  void finish(std::span<const Arrival> burst) noexcept;
  // Brings what kTimed has sent on its way.
  void settle() {
    settle(node(kTimed));
    records_.clear();
    if (log_ != nullptr) log_->take(records_, ~size_t{0});
  }

  // Everything that can move does, until nothing does any more.
  void run_dry();

 private:
  void settle(RingNode& node);

  BufferPool pool_;
  size_t burst_;
  Nanos now_ = 0;
  uint64_t moves_ = 0;  // data packets
  unsigned to_complete_ = 0;
  std::array<std::unique_ptr<RingNode>, kWorld> nodes_;
  std::unique_ptr<TraceLog> log_;  // null: no trace is taken
  std::vector<uint64_t> records_;
};

}  // namespace gradlane
