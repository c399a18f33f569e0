// trace_log.h - what happens to operations, for `gradlane trace`: written by a worker, read by the control thread
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/time.h"

namespace gradlane {

// Why an operation is not over, as its rank sees it at the end of a poll; `rank` of a wait says about whom.
enum class TraceCause : uint8_t {
  kRing,     // the ring is not whole: rank
  kLook,     // its codec looks at the tensor, on this rank
  kStart,    // rank has not started it: its trainer has not asked for it, or its codec looks at the tensor
  kLink,     // there is something to send, and no packet more may be on its way to rank
  kPackets,  // all is sent that is here; packets of rank are to come
  kWork,     // this rank's worker has not come to it yet, or has no packet buffer
  kCount
};
inline constexpr size_t kTraceCauses = static_cast<size_t>(TraceCause::kCount);

// Records are whole words, all of them 64 bits. The first one is kind | words << 8 | more << 16, with the words of the
// record, that one included. What follows are these, field by field. Times are those of the log's clock.
enum class TraceKind : uint8_t { kOperation = 1, kHop = 2, kWait = 3, kPacket = 4, kLink = 5 };

// `session` and `number` are the same on all ranks and lanes for one operation.
struct TraceOperation {
  static constexpr TraceKind kKind = TraceKind::kOperation;
  enum Flag : uint64_t { kCut = 1, kOpen = 2 };  // it began before the trace; it was not over at the trace's end
  uint64_t head = 0;
  uint64_t session = 0;
  uint64_t number = 0;
  uint64_t what = 0;    // OpKind | ElementType << 8 | CodecId << 16 | its parameter << 24 | FailureCode << 32
  uint64_t flags = 0;   // Flag | last << 8; last: 1 + rank of the trainer that submitted it last, 0: of one trainer
  uint64_t bytes = 0;   // of elements: this lane's part
  uint64_t sent = 0;    // Completion::sent_bytes
  Nanos asked = 0;      // the first trainer here handed it over,
  Nanos gathered = 0;   //   the last one did,
  Nanos submitted = 0;  //   their sum was there, and the exchange had room
  Nanos started = 0;    // 0: never
  Nanos ready = 0;      // for elements; 0: never
  Nanos ended = 0;
  // How long it has kept the worker busy, about: one call of kTimeEvery is timed.
  Nanos encode = 0;  // own elements, and results of what was added here
  Nanos add = 0;     // sums that came: checked, added to, encoded again
  Nanos decode = 0;  // results that came
  std::array<Nanos, kTraceCauses> waited{};
};

// Elements of one block that went to a neighbour, or came from it, in one phase and stage.
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

// A data packet whose sequence number is a multiple of TraceLog::kPacketEvery: each time it is sent, and comes.
struct TracePacket {
  static constexpr TraceKind kKind = TraceKind::kPacket;
  enum Flag : uint64_t { kIn = 1 };
  uint64_t head = 0;
  uint64_t session = 0;
  uint64_t what = 0;  // Flag | rank of the neighbour << 8 | sequence << 32
  uint64_t bytes = 0;
  Nanos at = 0;
};

// At the end of a trace, for each neighbour: how long recorded operations waited as its link was full, short waits
// included.
struct TraceLink {
  static constexpr TraceKind kKind = TraceKind::kLink;
  uint64_t head = 0;
  uint64_t rank = 0;
  Nanos full = 0;
};

// The log of one rank on one lane. The control thread makes it when a trace is first asked for, and starts and stops
// traces; the worker writes. A ring of words is between them: what does not fit is left out, and counted. Where there
// are very many operations, one of 2, 4, ... of them is recorded, by their numbers, which are the same on all ranks.
class TraceLog {
 public:
  static constexpr uint32_t kPacketEvery = 128;
  static constexpr unsigned kTimeEvery = 31;              // no divisor of a burst
  static constexpr Nanos kLeastWait = 20 * kMicrosecond;  // shorter ones are in the sums only
  static constexpr unsigned kMostWaits = 64;              // of an operation
  static constexpr Nanos kWindow = 100 * kMillisecond;    // in which so many operations are recorded, or fewer:
  static constexpr unsigned kMostOperations = 32;

  using Clock = Nanos (*)() noexcept;
  // `places`: operations at a time. `words`: a power of two. Blocks beyond words / 4 hops, of all places
  // together, have none.
  TraceLog(size_t places, unsigned world, size_t words, Clock read_clock);
  TraceLog(const TraceLog&) = delete;
  TraceLog& operator=(const TraceLog&) = delete;

  // ---- Control thread
  // What is left of an earlier trace is gone. Only when that one is over().
  void start() noexcept;
  void stop() noexcept { on_.store(false, std::memory_order_release); }
  // The worker has seen that it was stopped, and written what was left.
  [[nodiscard]] bool over() const noexcept { return over_.load(std::memory_order_acquire); }
  // Moves what is there, `most` words or somewhat more, whole records, to the end of `out`.
  void take(std::vector<uint64_t>& out, size_t most);
  [[nodiscard]] bool empty() const noexcept { return head_.load(std::memory_order_acquire) == tail_.load(); }
  [[nodiscard]] uint64_t dropped() const noexcept { return dropped_.load(std::memory_order_relaxed); }
  [[nodiscard]] uint64_t skipped() const noexcept { return skipped_.load(std::memory_order_relaxed); }

  // ---- Worker
  [[nodiscard]] bool on() const noexcept { return on_.load(std::memory_order_acquire); }
  [[nodiscard]] bool begun() const noexcept { return !over_.load(std::memory_order_relaxed); }
  [[nodiscard]] Nanos now() const noexcept { return now_; }
  void set_now(Nanos now) noexcept { now_ = now; }
  // Reads the clock: packets have come since the last time.
  void look_at_clock() noexcept { now_ = clock_(); }
  [[nodiscard]] Nanos clock() const noexcept { return clock_(); }
  // Whether the next call is timed, and counts kTimeEvery times.
  [[nodiscard]] bool times() noexcept { return ++turn_ % kTimeEvery == 0; }

  // An operation in a place of the exchange; false: it is not recorded.
  bool begin(size_t place, uint64_t session, uint32_t number) noexcept;
  [[nodiscard]] TraceOperation* operation(size_t place) noexcept {
    return open_[place].open ? &open_[place].record : nullptr;
  }
  // `index`: of the hop, among those of one phase and direction; what travels by it has come, or goes, now.
  void hop(size_t place, size_t index, uint64_t what, size_t runs, size_t bytes) noexcept;
  void write_hops(size_t place) noexcept;  // and forgets them
  // It waits for this from now on.
  void wait(size_t place, TraceCause cause, unsigned rank) noexcept;
  // It is over, or the trace is; the caller has filled in its record but for the waits.
  void end(size_t place) noexcept;
  void packet(const TracePacket& packet) noexcept;
  // The end of the trace, behind all operations.
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
    TraceCause cause = TraceCause::kCount;  // none yet
    unsigned rank = 0;
    unsigned waits = 0;
    Nanos since = 0;
    TraceOperation record;
  };
  static constexpr size_t kWays = 4;  // of hops: phases and directions
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
  // Words from tail_ to head_, modulo their number.
  std::vector<uint64_t> words_;
  alignas(64) std::atomic<uint64_t> head_{0};  // worker writes
  std::atomic<uint64_t> dropped_{0};           //   records for which there was no room,
  std::atomic<uint64_t> skipped_{0};           //   operations that were not recorded as there were too many;
  std::atomic<bool> over_{true};               //   see over(): control thread writes at the start, worker at the end
  alignas(64) std::atomic<uint64_t> tail_{0};  // control thread writes
  std::atomic<bool> on_{false};

  // Worker only.
  alignas(64) Nanos now_ = 0;
  unsigned turn_ = 0;
  uint32_t stride_ = 1;
  unsigned in_window_ = 0;
  Nanos window_ends_ = 0;
  std::vector<Open> open_;
  std::vector<Hop> hops_;    // by place, way and index
  std::vector<Nanos> full_;  // TraceLink::full, by rank
};

}  // namespace gradlane
