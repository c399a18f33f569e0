// exchange.h - one rank's side of the exchange: collectives over lossy datagrams, as logic without clock, I/O or
// threads
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "base/time.h"
#include "collectives/counters.h"
#include "collectives/exchange_config.h"
#include "collectives/link/link_totals.h"
#include "collectives/operation.h"
#include "collectives/packet_io.h"
#include "collectives/trace_log.h"

namespace gradlane {

class ExchangeState;

// An earlier cause of failures, and the number of operations that had failed when another cause appeared.
struct PastFailure {
  Failure failure;  // kNone: there was no such cause
  uint64_t until = 0;
  bool operator==(const PastFailure&) const = default;
};
using PastFailures = std::array<PastFailure, 3>;  // latest first

// The state of the ring as one rank sees it; for status displays and tests.
struct RingStatus {
  bool ready = false;  // the ring is ready: all ranks are in this session, and operations run
  uint64_t session = 0;
  unsigned missing = 0;  // rank that the ring waits for if it is not ready: Membership::missing()
  Failure refused;       // difference for which this rank refuses a neighbour; kNone: it refuses none
  Failure ended;         // cause that ended the previous generation; kNone: there was none
  Failure failed;        // failure of the latest operation that failed; kNone: none has failed
  PastFailures before;   // causes of failures before `failed`
};

// The state of a link to one neighbour; for status displays, tests and tuning.
struct LinkStatus {
  unsigned rank = 0;
  bool up = false;
  size_t in_flight = 0;    // packets
  double window = 0;       // congestion window, packets
  Nanos smoothed_rtt = 0;  // 0: not measured yet
  Nanos least_rtt = 0;
  Failure refused;          // difference for which this rank refuses the neighbour
  Nanos waiting_since = 0;  // time when the oldest packet in flight became the oldest one; 0: nothing is in flight
  LinkTotals totals;
};

// Bytes that were sent by one codec. The sums over all codecs are Counter::kElementBytes and Counter::kRunBytes.
struct CodecTotals {
  uint64_t element_bytes = 0;
  uint64_t run_bytes = 0;

  void add(uint64_t sent, uint64_t raw) noexcept {
    run_bytes += sent;
    element_bytes += raw;
  }
};
using AllCodecTotals = std::array<CodecTotals, kCodecIds>;  // indexed by CodecId

// Durations of the operations that succeeded, from submission to completion, indexed by StrategyId::Kind.
using OperationTimes = std::array<OperationHistogram, kStrategyKinds>;

// The exchange of one rank on one lane. docs/exchange.md explains it. The caller gives it packets and the time, and
// calls poll() when packets have arrived, when operations were submitted, or when deadline() has passed. No call
// blocks, and nothing is allocated after construction.
//
// Times must never go backwards. Read `now` after packets were taken from a port. If `now` is earlier than an arrival,
// the path looks shorter than it is, and later packets seem to wait in queues. Not thread-safe: one thread calls all
// functions.
//
// The constructor allocates all memory. Each neighbour takes 17 KiB, and 40 bytes for each packet in flight (`window`;
// fewer on links outside the ring). Each operation in flight takes 84 KiB, 2 bits per 128 bytes of max_bytes, and 4
// bits per rank. With 3 or more ranks it takes 4 bytes more per 128 bytes of max_bytes; pages of these are touched only
// when results wait there. If blocks may have owners, it takes 1.7 MiB more. Packet buffers belong to the caller;
// buffers() returns their number.
class Exchange {
 public:
  // Returns the largest number of packet buffers that an exchange holds at a time, including those that receive()
  // keeps.
  [[nodiscard]] static size_t buffers(const ExchangeConfig& config);

  // Throws SetupError that names the setting of `config` that is out of range. `io` must outlive the exchange.
  Exchange(const ExchangeConfig& config, PacketIo& io);
  // Gives back all buffers.
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  enum class Refusal : uint8_t {
    kNone,
    kFull,      // too many operations are not over or have unread completions (ExchangeConfig::operations)
    kTooLarge,  // the tensor has more than max_bytes
    kStrategy,  // the strategy is not allowed, or cannot do this operation, or has no owners for a codec whose
                // blocks cannot be added; the codec needs links between all ranks, and they do not exist; `back_codec`
                // without aggregator
    kPacket,    // the shortest run of the codec does not fit into a packet
    kBad,       // an argument is wrong: kind, type, reduction, root or pitch; a residual for a codec or kind without
                // feedback; no data; an `out` that is missing, not asked for, or overlaps the data. Or `back_codec`
                // differs from `codec`, and finishes sums or needs an agreement of the ranks.
  };
  struct Submitted {
    uint64_t id = 0;  // number of the accepted submission, from 0
    Refusal refusal = Refusal::kNone;
  };

  // Accepts an operation, which poll() starts. Each accepted operation ends with exactly one completion.
  [[nodiscard]] Submitted submit(const Operation& operation, Nanos now) noexcept;

  // Returns the text for an operation that was refused with kPacket: what is wrong, and what to do.
  [[nodiscard]] FailureText packet_fault(const Operation& operation) const noexcept;

  // Fails an operation on all ranks. Does nothing if the operation is over.
  void abort(uint64_t id) noexcept;

  // Fails all operations on all ranks. The other ranks learn of it through the polls of the next milliseconds. If the
  // caller goes on polling after that, this exchange takes part in the next generation.
  void close() noexcept;

  // Excludes the neighbour of rank why.rank, because the caller has found that it must not take part. Ends the
  // generation, and operations that are submitted from now on fail. Does nothing if the same refusal is already known.
  // While it is excluded, the caller must withhold all its packets. A new session ends the exclusion: the caller must
  // then call this again.
  void refuse(const Failure& why) noexcept;

  // Returns whether no operation was submitted in this generation of the ring, so that the next one gets number 0. If
  // operations were submitted, and another program takes over the rank, call close(): it restarts the numbers on all
  // ranks.
  [[nodiscard]] bool none_submitted() const noexcept;

  // Returns whether a neighbour has started an operation that was not submitted here yet.
  [[nodiscard]] bool awaited() const noexcept;

  // Notes that packets from the neighbour of rank `from` arrive with a ToS byte that no class has, and are dropped.
  // Does nothing if `from` is not a neighbour.
  void note_wrong_tos(unsigned from, uint8_t tos, Nanos now) noexcept;

  // ---- Ranks whose trainer has gone, at the start of a generation; Membership explains them.
  //
  // Notes that operations begin here for trainers that took part in generation `since`, which is over.
  void announce_since(uint32_t since) noexcept;
  // Returns the earliest generation in which trainers took part that have begun operations in this one, on any rank; 0:
  // there are no such trainers.
  [[nodiscard]] uint32_t announced_since() const noexcept;
  [[nodiscard]] uint32_t generation() const noexcept;
  // Returns the generation in which the ring was ready on this rank for the first time; 0: it never was.
  [[nodiscard]] uint32_t first_generation() const noexcept;

  // Hands over the unread completion with the lowest id. Returns false if there is none.
  [[nodiscard]] bool next_completion(Completion& completion) noexcept;

  // Takes a packet from the neighbour of rank `from`: `bytes` bytes at packet.data, from the link header on. Returns
  // true if the exchange keeps the buffer. It may then write to the buffer, and releases it through
  // PacketIo::release(). Otherwise the buffer belongs to the caller again.
  [[nodiscard]] bool receive(unsigned from, Packet packet, size_t bytes, Nanos now) noexcept;

  // Sends what can be sent, and checks deadlines.
  void poll(Nanos now) noexcept;

  // Returns the time when poll() has something to do even without new packets; kNever if there is no such time.
  [[nodiscard]] Nanos deadline() const noexcept;

  // Returns the ranks that packets go to and come from: the successor, the predecessor, and all others that the
  // configured strategies need. The list is constant.
  [[nodiscard]] std::span<const unsigned> neighbours() const noexcept;

  // ---- Traces
  //
  // Makes a log for this exchange. Any thread may call this.
  [[nodiscard]] std::unique_ptr<TraceLog> make_trace(size_t words, TraceLog::Clock clock) const;
  // Starts or stops a trace as the log says. If there is a log, call this before each poll, always with the same log.
  // Returns whether a trace is being taken.
  bool trace(TraceLog& log, Nanos now) noexcept;

  [[nodiscard]] const Counters& counters() const noexcept;
  [[nodiscard]] const AllCodecTotals& codec_totals() const noexcept;
  [[nodiscard]] const OperationTimes& operation_times() const noexcept;
  [[nodiscard]] RingStatus ring_status() const noexcept;
  [[nodiscard]] LinkStatus link_status(size_t neighbour) const noexcept;  // `neighbour`: index into neighbours()

 private:
  std::unique_ptr<ExchangeState> state_;
};

}  // namespace gradlane
