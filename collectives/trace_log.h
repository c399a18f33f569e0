// trace_log.h - the records of a `gradlane trace`: a worker writes what happens to operations, the control thread reads
// it
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/time.h"

namespace gradlane {

// The reason why an operation is not finished, as its rank sees it at the end of a poll. The `rank` of a TraceWait is
// the rank that the operation waits for.
enum class TraceCause : uint8_t {
  kRing,     // the ring is not ready: rank is missing
  kScan,     // its codec scans the tensor on this rank
  kStart,    // rank has not started it: its trainer has not submitted it, or its codec scans the tensor
  kLink,     // there is something to send, but the window of the link to rank is full
  kPackets,  // everything that this rank has was sent, and packets from rank have not all arrived
  kWork,     // this rank's worker has not processed it yet, or has no packet buffer
  kCount
};
inline constexpr size_t kTraceCauses = static_cast<size_t>(TraceCause::kCount);

// Records consist of 64-bit words. The first word is kind | words << 8, where `words` is the length of the record with
// this word. The fields below follow in their order. Times are those of the log's clock.
enum class TraceKind : uint8_t { kOperation = 1, kHop = 2, kWait = 3, kPacket = 4, kLink = 5 };

// `session` and `number` identify an operation on one lane, and are the same on all ranks.
struct TraceOperation {
  static constexpr TraceKind kKind = TraceKind::kOperation;
  // kCut: it began before the trace. kOpen: it was not finished at the trace's end.
  enum Flag : uint64_t { kCut = 1, kOpen = 2 };
  uint64_t head = 0;
  uint64_t session = 0;
  uint64_t number = 0;
  uint64_t what = 0;  // OpKind | ElementType << 8 | CodecId << 16 | its parameter << 24 | FailureCode << 32
  // Flag | last << 8. `last` is 1 + rank of the trainer that submitted it last; 0: the rank has one trainer.
  uint64_t flags = 0;
  uint64_t bytes = 0;   // bytes of elements in this lane's part
  uint64_t sent = 0;    // Completion::sent_bytes
  Nanos asked = 0;      // time when the first trainer here submitted it
  Nanos gathered = 0;   // time when the last trainer here submitted it
  Nanos submitted = 0;  // time when the exchange accepted it, after all trainers here had submitted it
  Nanos started = 0;    // time when it started; 0: never
  Nanos ready = 0;      // time when it was ready for elements; 0: never
  Nanos ended = 0;
  // Worker time, estimated: one of kTimeEvery calls is timed.
  Nanos encode = 0;  // encoding own elements, and results that were added up here
  Nanos add = 0;     // received sums: checking, adding, encoding again
  Nanos decode = 0;  // decoding received results
  std::array<Nanos, kTraceCauses> waited{};
};

// Elements of one block that were sent to a neighbour or received from it, in one phase and stage.
struct TraceHop {
  static constexpr TraceKind kKind = TraceKind::kHop;
  enum Flag : uint64_t { kIn = 1, kGather = 2, kToAll = 4 };
  uint64_t head = 0;
  uint64_t session = 0;
  uint64_t number = 0;
  uint64_t what = 0;  // Flag | stage << 8 | block << 16 | rank of the neighbour << 32
  uint64_t runs = 0;
  uint64_t bytes = 0;  // encoded
  Nanos first = 0;
  Nanos last = 0;
};

struct TraceWait {
  static constexpr TraceKind kKind = TraceKind::kWait;
  uint64_t head = 0;
  uint64_t session = 0;
  uint64_t number = 0;
  uint64_t what = 0;  // TraceCause | rank << 8
  Nanos since = 0;
  Nanos until = 0;
};

// A data packet whose sequence number is a multiple of TraceLog::kPacketEvery. There is a record for each time it is
// sent and for each time it arrives.
struct TracePacket {
  static constexpr TraceKind kKind = TraceKind::kPacket;
  enum Flag : uint64_t { kIn = 1 };
  uint64_t head = 0;
  uint64_t session = 0;
  uint64_t what = 0;  // Flag | rank of the neighbour << 8 | sequence << 32
  uint64_t bytes = 0;
  Nanos at = 0;
};

// A record at the end of a trace for each neighbour: the time that recorded operations waited because the link to it
// was full. It includes waits that were too short for a TraceWait.
struct TraceLink {
  static constexpr TraceKind kKind = TraceKind::kLink;
  uint64_t head = 0;
  uint64_t rank = 0;
  Nanos full = 0;
};

// The log of one rank on one lane. The control thread makes it when a trace is first requested, and starts and stops
// traces. The worker writes to it. Between the two threads is a ring buffer of words; records that do not fit are
// dropped and counted. If there are more than kMostOperations in a kWindow, only one in 2, 4, 8, ... operations is
// recorded. It is chosen by its number, which is the same on all ranks.
class TraceLog {
 public:
  static constexpr uint32_t kPacketEvery = 128;
  static constexpr unsigned kTimeEvery = 31;  // one in kTimeEvery calls is timed; does not divide the size of a burst
  // shorter waits get no TraceWait, but count in TraceOperation::waited
  static constexpr Nanos kLeastWait = 20 * kMicrosecond;
  static constexpr unsigned kMostWaits = 64;  // most TraceWait records of one operation
  // Period in which about kMostOperations operations are recorded, or fewer.
  static constexpr Nanos kWindow = 100 * kMillisecond;
  static constexpr unsigned kMostOperations = 32;

  using Clock = Nanos (*)() noexcept;
  // `places`: number of slots in the exchange's table of operations. `words`: length of the ring buffer, a power of
  // two. There is memory for words / 4 hops of all operations together (kLeastHops at least). Hops of blocks beyond
  // that are not recorded.
  TraceLog(size_t places, unsigned world, size_t words, Clock read_clock);
  TraceLog(const TraceLog&) = delete;
  TraceLog& operator=(const TraceLog&) = delete;

  // ---- Control thread
  // Starts a trace, and discards what is left of an earlier one. Call it only if the earlier one is over().
  void start() noexcept;
  void stop() noexcept { on_.store(false, std::memory_order_release); }
  // Returns whether the worker has noticed the stop and written its last records.
  [[nodiscard]] bool over() const noexcept { return over_.load(std::memory_order_acquire); }
  // Moves whole records to the end of `out`, until `most` words (or slightly more) have been moved or no record is
  // left.
  void take(std::vector<uint64_t>& out, size_t most);
  [[nodiscard]] bool empty() const noexcept { return head_.load(std::memory_order_acquire) == tail_.load(); }
  [[nodiscard]] uint64_t dropped() const noexcept { return dropped_.load(std::memory_order_relaxed); }
  [[nodiscard]] uint64_t skipped() const noexcept { return skipped_.load(std::memory_order_relaxed); }

  // ---- Worker
  [[nodiscard]] bool on() const noexcept { return on_.load(std::memory_order_acquire); }
  [[nodiscard]] bool begun() const noexcept { return !over_.load(std::memory_order_relaxed); }
  [[nodiscard]] Nanos now() const noexcept { return now_; }
  void set_now(Nanos now) noexcept { now_ = now; }
  // Reads the clock again. Call it when packets have arrived after the time that now() returns.
  void look_at_clock() noexcept { now_ = clock_(); }
  [[nodiscard]] Nanos clock() const noexcept { return clock_(); }
  // Returns whether to time the next call, which then counts for kTimeEvery calls.
  [[nodiscard]] bool times() noexcept { return ++turn_ % kTimeEvery == 0; }

  // Begins the record of the operation in slot `place` of the exchange's table. Returns false if it is not recorded.
  bool begin(size_t place, uint64_t session, uint32_t number) noexcept;
  [[nodiscard]] TraceOperation* operation(size_t place) noexcept {
    return open_[place].open ? &open_[place].record : nullptr;
  }
  // Records that a run was sent or received now. `index`: block, or rank if a block has runs of every rank.
  void hop(size_t place, size_t index, uint64_t what, size_t runs, size_t bytes) noexcept;
  void write_hops(size_t place) noexcept;  // writes the hops recorded for the operation, then clears them
  // Records what the operation waits for from now on.
  void wait(size_t place, TraceCause cause, unsigned rank) noexcept;
  // Ends a record, because the operation or the trace is over. The caller has filled in all but the waits.
  void end(size_t place) noexcept;
  void packet(const TracePacket& packet) noexcept;
  // Ends the trace. Call it after all operations have ended.
  void close(std::span<const unsigned> neighbours) noexcept;

 private:
  struct Hop {
    Nanos first = 0;  // 0: none
    Nanos last = 0;
    uint64_t what = 0;
    uint32_t runs = 0;
    uint32_t bytes = 0;
  };
  struct Open {
    bool open = false;
    TraceCause cause = TraceCause::kCount;  // cause of the present wait; kCount: none yet
    unsigned rank = 0;
    unsigned waits = 0;
    Nanos since = 0;
    TraceOperation record;
  };
  static constexpr size_t kWays = 4;  // combinations of phase and direction of hops
  static constexpr size_t kLeastHops = 4096;

  [[nodiscard]] bool chosen(uint32_t number) noexcept;
  [[nodiscard]] std::span<Hop> hops_of(size_t place) noexcept {
    return std::span(hops_).subspan(place * kWays * blocks_, kWays * blocks_);
  }
  void write_wait(const Open& it) noexcept;
  template <class Record>
  void write(Record record) noexcept;

  const Clock clock_;
  const size_t blocks_;
  // Holds the words from tail_ to head_, modulo its length.
  std::vector<uint64_t> words_;
  alignas(64) std::atomic<uint64_t> head_{0};  // written by the worker
  std::atomic<uint64_t> dropped_{0};           // written by the worker: records that did not fit
  std::atomic<uint64_t> skipped_{0};  // written by the worker: operations not recorded because there were too many
  // see over(); the control thread clears it at the start, the worker sets it at the end
  std::atomic<bool> over_{true};
  alignas(64) std::atomic<uint64_t> tail_{0};  // written by the control thread
  std::atomic<bool> on_{false};

  // Worker only.
  alignas(64) Nanos now_ = 0;
  unsigned turn_ = 0;
  uint32_t stride_ = 1;
  unsigned in_window_ = 0;
  Nanos window_ends_ = 0;
  std::vector<Open> open_;
  std::vector<Hop> hops_;    // indexed by place, then phase and direction, then block or rank
  std::vector<Nanos> full_;  // TraceLink::full, by rank
};

}  // namespace gradlane
