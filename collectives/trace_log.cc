// trace_log.cc - records of a trace, passed from a worker to the control thread (both threads)
#include "collectives/trace_log.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace gradlane {

TraceLog::TraceLog(size_t places, unsigned world, size_t words, Clock read_clock)
    : clock_(read_clock),
      blocks_(std::clamp<size_t>(std::max(words / 4, kLeastHops) / (places * kWays), 1, world)),
      words_(words),
      open_(places),
      hops_(places * kWays * blocks_),
      full_(world) {}

// ---- Control thread

void TraceLog::start() noexcept {
  tail_.store(head_.load(std::memory_order_acquire), std::memory_order_release);
  dropped_.store(0, std::memory_order_relaxed);
  skipped_.store(0, std::memory_order_relaxed);
  over_.store(false, std::memory_order_relaxed);
  on_.store(true, std::memory_order_release);
}

void TraceLog::take(std::vector<uint64_t>& out, size_t most) {
  const uint64_t head = head_.load(std::memory_order_acquire);
  uint64_t tail = tail_.load(std::memory_order_relaxed);
  const size_t mask = words_.size() - 1;
  for (size_t moved = 0; tail != head && moved < most;) {
    const size_t length = words_[tail & mask] >> 8 & 0xff;
    for (size_t i = 0; i < length; ++i) out.push_back(words_[tail++ & mask]);
    moved += length;
  }
  tail_.store(tail, std::memory_order_release);
}

// ---- Worker

template <class Record>
void TraceLog::write(Record record) noexcept {
  constexpr size_t kWords = sizeof(Record) / sizeof(uint64_t);
  static_assert(kWords * sizeof(uint64_t) == sizeof(Record) && kWords < 256);
  record.head = static_cast<uint64_t>(Record::kKind) | kWords << 8;
  const uint64_t head = head_.load(std::memory_order_relaxed);
  if (words_.size() - (head - tail_.load(std::memory_order_acquire)) < kWords) {
    dropped_.store(dropped_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    return;
  }
  const auto words = std::bit_cast<std::array<uint64_t, kWords>>(record);
  for (size_t i = 0; i < kWords; ++i) words_[(head + i) & (words_.size() - 1)] = words[i];
  head_.store(head + kWords, std::memory_order_release);
}

bool TraceLog::chosen(uint32_t number) noexcept {
  if (now_ >= window_ends_) {
    if (in_window_ < kMostOperations / 4) stride_ = std::max(stride_ / 2, 1U);
    in_window_ = 0;
    window_ends_ = now_ + kWindow;
  } else if (in_window_ >= kMostOperations) {
    stride_ = std::min(stride_ * 2, 1U << 20);
    in_window_ = 0;
    window_ends_ = now_ + kWindow;
  }
  if (number % stride_ != 0) {
    skipped_.store(skipped_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    return false;
  }
  ++in_window_;
  return true;
}

bool TraceLog::begin(size_t place, uint64_t session, uint32_t number) noexcept {
  Open& it = open_[place];
  it = {};
  it.open = chosen(number);
  it.record.session = session;
  it.record.number = number;
  return it.open;
}

void TraceLog::hop(size_t place, size_t index, uint64_t what, size_t runs, size_t bytes) noexcept {
  if (!open_[place].open || index >= blocks_) return;
  Hop& it = hops_of(place)[(what & (TraceHop::kIn | TraceHop::kGather)) * blocks_ + index];
  if (it.first == 0) it.first = now_;
  it.last = now_;
  it.what = what;
  it.runs += static_cast<uint32_t>(runs);
  it.bytes += static_cast<uint32_t>(bytes);
}

void TraceLog::write_hops(size_t place) noexcept {
  const TraceOperation& of = open_[place].record;
  if (!open_[place].open) return;
  for (Hop& it : hops_of(place)) {
    if (it.first == 0) continue;
    write(TraceHop{.session = of.session,
                   .number = of.number,
                   .what = it.what,
                   .runs = it.runs,
                   .bytes = it.bytes,
                   .first = it.first,
                   .last = it.last});
    it = {};
  }
}

void TraceLog::write_wait(const Open& it) noexcept {
  write(TraceWait{.session = it.record.session,
                  .number = it.record.number,
                  .what = static_cast<uint64_t>(it.cause) | uint64_t{it.rank} << 8,
                  .since = it.since,
                  .until = now_});
}

void TraceLog::wait(size_t place, TraceCause cause, unsigned rank) noexcept {
  Open& it = open_[place];
  if (!it.open || (it.cause == cause && it.rank == rank)) return;
  if (it.cause != TraceCause::kCount) {
    const Nanos time = now_ - it.since;
    it.record.waited[static_cast<size_t>(it.cause)] += time;
    if (it.cause == TraceCause::kLink) full_[it.rank] += time;
    if (time >= kLeastWait && it.waits++ < kMostWaits) write_wait(it);
  }
  it.cause = cause;
  it.rank = rank;
  it.since = now_;
}

void TraceLog::end(size_t place) noexcept {
  if (!open_[place].open) return;
  wait(place, TraceCause::kCount, 0);
  write_hops(place);
  write(open_[place].record);
  open_[place].open = false;
}

void TraceLog::packet(const TracePacket& packet) noexcept { write(packet); }

void TraceLog::close(std::span<const unsigned> neighbours) noexcept {
  for (const unsigned rank : neighbours) write(TraceLink{.rank = rank, .full = std::exchange(full_[rank], 0)});
  stride_ = 1;
  over_.store(true, std::memory_order_release);
}

}  // namespace gradlane
