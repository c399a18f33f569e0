// ring.h - a ring of exchanges in one process, one of which can be timed (benchmarks only)
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

// Packet buffers, all allocated beforehand. take() returns the buffer that was given back most recently, like a lane's
// cache.
class BufferPool {
 public:
  BufferPool(size_t count, size_t capacity);

  [[nodiscard]] Packet take() noexcept;
  void give(Packet packet) noexcept { free_.push_back(packet.data); }
  // Returns the buffers that will be taken next.
  [[nodiscard]] std::span<uint8_t* const> next(size_t most) const noexcept;

 private:
  BenchMemory memory_;
  std::vector<uint8_t*> free_;
};

struct Arrival {
  Packet packet;
  size_t bytes = 0;
  unsigned from = 0;  // rank
  bool kept = false;  // receive() has kept the buffer
};

// One rank. Its PacketIo functions only record the packets that are sent, and the buffers that are released.
// BenchRing::deliver() later copies the packets to their receivers, and makes the buffers available again.
class RingNode final : public PacketIo {
 public:
  RingNode(const ExchangeConfig& config, BufferPool& pool);

  [[nodiscard]] Exchange& exchange() noexcept { return exchange_; }
  [[nodiscard]] const Exchange& exchange() const noexcept { return exchange_; }

  // Packets that have arrived and that the exchange has not received yet, oldest first. Only the predecessor sends
  // elements.
  std::deque<Arrival> from_predecessor;
  std::deque<Arrival> from_successor;
  bool held = false;  // true if data packets of the predecessor must wait

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
  Exchange exchange_;  // last member: its destructor gives back buffers
};

// The ranks 0 to 3. The caller times receive() and poll() of rank kTimed. Time is virtual, and no packet is lost.
// Neither delay nor timeouts shrink the windows, so the caller decides how many packets are in flight.
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

  // Takes a trace of kTimed from now on. deliver() reads its records, while nothing is timed.
  void trace();

  void submit(unsigned rank, const Operation& operation);
  [[nodiscard]] bool done();  // returns whether all operations are done; throws SetupError if one has failed

  // Advances the time, and gives a rank all packets that wait for it, in bursts with a poll after each.
  void serve(unsigned rank);
  // Calls serve() for all ranks except kTimed, beginning with the successor of kTimed.
  void serve_others();
  // Advances the time, and takes the next burst for kTimed. The burst also gets half of the acknowledgements that wait
  // from the successor, which sends one for each burst that it receives. So if serve_others() is called after every two
  // bursts, each of the two gets one acknowledgement.
  void take_burst(std::vector<Arrival>& burst);
  // The caller times these two functions.
  void receive(std::span<Arrival> burst) noexcept;
  void poll() noexcept {
    if (log_ != nullptr) node(kTimed).exchange().trace(*log_, now_);
    node(kTimed).exchange().poll(now_);
  }
  // Gives back the buffers that receive() did not keep.
  void finish(std::span<const Arrival> burst) noexcept;
  // Delivers the packets that kTimed has sent.
  void deliver() {
    deliver(node(kTimed));
    records_.clear();
    if (log_ != nullptr) log_->take(records_, ~size_t{0});
  }

  // Serves all ranks until no data packet moves any more.
  void run_dry();

 private:
  void deliver(RingNode& node);

  BufferPool pool_;
  size_t burst_;
  Nanos now_ = 0;
  uint64_t moves_ = 0;  // number of data packets that were delivered
  unsigned to_complete_ = 0;
  std::array<std::unique_ptr<RingNode>, kWorld> nodes_;
  std::unique_ptr<TraceLog> log_;  // null: no trace is taken
  std::vector<uint64_t> records_;
};

}  // namespace gradlane
