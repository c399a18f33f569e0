// exchange.h - one node's end of the exchange: collectives over lossy datagrams, as logic without clock, I/O or threads
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

// A cause of failures, before another one came, and how many operations had failed by then.
struct PastFailure {
  Failure failure;  // none: there was none
  uint64_t until = 0;
  bool operator==(const PastFailure&) const = default;
};
using PastFailures = std::array<PastFailure, 3>;  // the latest first

// What one rank's neighbourhood looks like; for status displays and tests.
struct RingStatus {
  bool whole = false;  // all ranks are in this session: operations run
  uint64_t session = 0;
  unsigned missing = 0;  // not whole: the first rank, counting back from this one, that nothing is known of
  Failure refused;       // by this rank, of a neighbour that is configured differently
  Failure ended;         // why the generation before this one ended; none: there was none
  Failure failed;        // why the last operation failed that did; none: none has
  PastFailures before;   // the causes before that one
};

// What a link to one neighbour does; for status displays, tests and tuning.
struct LinkStatus {
  unsigned rank = 0;
  bool up = false;
  size_t in_flight = 0;    // packets
  double window = 0;       // congestion window, packets
  Nanos smoothed_rtt = 0;  // 0: not measured yet
  Nanos least_rtt = 0;
  Failure refused;          // the neighbour is configured differently
  Nanos waiting_since = 0;  // nothing in flight has been acknowledged since then; 0: nothing is in flight
  LinkTotals totals;
};

// What has been sent by a codec, as counters have it of all.
struct CodecTotals {
  uint64_t element_bytes = 0;
  uint64_t run_bytes = 0;

  void add(uint64_t sent, uint64_t raw) noexcept {
    run_bytes += sent;
    element_bytes += raw;
  }
};
using AllCodecTotals = std::array<CodecTotals, kCodecIds>;  // by CodecId

// How long operations took that succeeded, from their submission on; by StrategyId::Kind.
using OperationTimes = std::array<OperationHistogram, kStrategyKinds>;

// The exchange of one lane of one node. docs/exchange.md explains it. The owner gives it packets and the time, and
// calls poll() whenever packets came, operations were submitted, or deadline() has passed. Nothing blocks, and nothing
// is allocated after construction. Times never go backwards, and `now` is read after packets were taken from a port:
// one that is earlier than an arrival makes the path look shorter than it is, and queues seem to be everywhere. Not
// thread-safe: one thread calls all functions.
//
// Memory, all allocated by the constructor: per neighbour, a table of 40 bytes for each packet in flight (`window`,
// less beside the ring) and 17 KiB; per operation in flight, 2 bits per 128 bytes of max_bytes, 4 bits per rank, 84
// KiB; from 3 ranks on, 4 bytes per 128 bytes of max_bytes, of which pages are touched when results wait there; where
// blocks may have owners, 1.7 MiB more for each. Packet buffers are the owner's: buffers().
class Exchange {
 public:
  // So many packet buffers an exchange holds at most, those that receive() keeps among them.
  [[nodiscard]] static size_t buffers(const ExchangeConfig& config);

  // Throws SetupError naming what in `config` is out of range. `io` outlives the exchange.
  Exchange(const ExchangeConfig& config, PacketIo& io);
  // Gives back all buffers.
  ~Exchange();
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  enum class Refusal : uint8_t {
    kNone,
    kFull,      // too many are not over, or their completions not read (ExchangeConfig::operations)
    kTooLarge,  // the tensor has more than max_bytes
    kStrategy,  // it is none of the configuration's, or cannot do such an operation; the codec does not add, and needs
                // owners; ranks agree on something for it, and not all of them are linked to each other
    kPacket,    // a granule of the codec does not fit into a packet
    kBad,       // no such root, an average of integers, a residual for a codec or kind without feedback, no data, an
                // `out` that is missing, not asked for, or not apart from the data; a codec of the way back that needs
                // to know the contributions
  };
  struct Submitted {
    uint64_t id = 0;  // counts from 0
    Refusal refusal = Refusal::kNone;
  };

  // Takes an operation, which starts in poll(). It ends with exactly one completion.
  [[nodiscard]] Submitted submit(const Operation& operation, Nanos now) noexcept;

  // Of an operation that was refused for its codec (kPacket): what is wrong, and what to do.
  [[nodiscard]] FailureText packet_fault(const Operation& operation) const noexcept;

  // Fails an operation on all ranks. Does nothing once it is over.
  void abort(uint64_t id) noexcept;

  // Fails all operations, here and on all ranks. They hear of it from the polls of the next milliseconds; an exchange
  // that is polled for longer takes part again.
  void close() noexcept;

  // The neighbour of rank why.rank must not take part, as the owner has found: ends the generation, and what is
  // submitted from now on fails. Does nothing if that is known. To be called again and again, as it holds for this
  // session; and the owner keeps its packets back meanwhile.
  void refuse(const Failure& why) noexcept;

  // No operation was submitted in this generation of the ring: the next one will have number 0. Where another program
  // takes over the rank, and this is false, close() lets numbers begin afresh on all ranks.
  [[nodiscard]] bool fresh() const noexcept;

  // A neighbour has started an operation that was not submitted here yet.
  [[nodiscard]] bool awaited() const noexcept;

  // Packets of the neighbour of rank `from` come with a ToS byte that no class has, and are dropped. Does nothing for
  // other ranks.
  void complain(unsigned from, uint8_t tos, Nanos now) noexcept;

  // ---- Ranks whose trainer has gone, for the start of a generation (Membership explains it). Operations are begun
  // here for trainers that took part in generation `since`, which is over.
  void seek(uint32_t since) noexcept;
  // In this generation somebody, perhaps of this rank, has begun operations who took part in that one; 0: nobody has.
  [[nodiscard]] uint32_t sought() const noexcept;
  [[nodiscard]] uint32_t generation() const noexcept;
  // The one in which the ring was whole here for the first time; 0: it never was.
  [[nodiscard]] uint32_t first_generation() const noexcept;

  // The oldest unread completion; false if there is none.
  [[nodiscard]] bool next_completion(Completion& completion) noexcept;

  // A packet from the neighbour of rank `from`, from the link header on: `bytes` bytes at packet.data. Returns true if
  // it keeps the buffer, which it then releases through PacketIo::release(); it may write to it. Otherwise the buffer
  // is the caller's again.
  [[nodiscard]] bool receive(unsigned from, Packet packet, size_t bytes, Nanos now) noexcept;

  // Sends what can be sent, looks after deadlines.
  void poll(Nanos now) noexcept;

  // When poll() has something to do without new packets; kNever if that will not be.
  [[nodiscard]] Nanos deadline() const noexcept;

  // The ranks that packets go to and come from: the next one and the one before, and those that the strategies of the
  // configuration need beside them. Constant.
  [[nodiscard]] std::span<const unsigned> neighbours() const noexcept;

  // ---- Traces. A log for this exchange, from any thread.
  [[nodiscard]] std::unique_ptr<TraceLog> make_trace(size_t words, TraceLog::Clock clock) const;
  // Before each poll, once there is a log, always the same one: a trace begins or ends as the log says. Whether one is
  // being taken.
  bool trace(TraceLog& log, Nanos now) noexcept;

  [[nodiscard]] const Counters& counters() const noexcept;
  [[nodiscard]] const AllCodecTotals& codec_totals() const noexcept;
  [[nodiscard]] const OperationTimes& operation_times() const noexcept;
  [[nodiscard]] RingStatus ring_status() const noexcept;
  [[nodiscard]] LinkStatus link_status(size_t neighbour) const noexcept;  // index into neighbours()

 private:
  std::unique_ptr<ExchangeState> state_;
};

}  // namespace gradlane
