// node_trace.h - traces of a node: one at a time, of all its lanes, for a client that keeps asking (control thread
// only)
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/time.h"
#include "collectives/trace_log.h"
#include "dataplane/lane/lane.h"
#include "dataplane/trainer/mailbox.h"

namespace gradlane {

// Memory is taken when a trace is first asked for, kMostBytes for records and about as much again for those that are
// not written yet, and kept for the next one. A trace ends when its client says so, or has not asked for kLease, or
// after kLongest.
class NodeTrace {
 public:
  static constexpr Nanos kLease = 3 * kSecond;
  static constexpr Nanos kLongest = 700 * kSecond;
  static constexpr size_t kMostBytes = size_t{64} << 20;
  static constexpr size_t kMostWords = size_t{1} << 19;  // of a log
  static constexpr size_t kLeastWords = size_t{1} << 12;
  static constexpr size_t kTakenAtOnce = size_t{1} << 16;  // words

  // At construction of the node. Both outlive this.
  void add(Lane& lane, unsigned number, LaneDesk& desk) { logs_.push_back({&lane, &desk, number, nullptr}); }

  // The number of the new trace; 0: one is being taken, or its client has not fetched all of it yet.
  [[nodiscard]] uint64_t start(Nanos now);
  // The client of trace `id` is there; false: that one is over, and what there was of it may be gone.
  [[nodiscard]] bool renew(uint64_t id, Nanos now) noexcept;
  void stop() noexcept;
  // Workers have written all they will.
  [[nodiscard]] bool over() const noexcept;
  [[nodiscard]] bool on() const noexcept { return on_; }
  // Every 100 ms.
  void tend(Nanos now) noexcept;

  struct Part {
    unsigned rank = 0;
    unsigned lane = 0;
    uint64_t dropped = 0;  // records that did not fit, so far
    uint64_t skipped = 0;  // operations that were not recorded
    std::vector<uint64_t> words;
  };
  // Of all lanes; kTakenAtOnce words or somewhat more. `more`: there are others.
  [[nodiscard]] std::vector<Part> take(bool& more);

 private:
  [[nodiscard]] bool drained() const noexcept;

  struct Log {
    Lane* lane;
    LaneDesk* desk;
    unsigned number;
    std::unique_ptr<TraceLog> log;
  };
  std::vector<Log> logs_;
  uint64_t id_ = 0;
  bool on_ = false;
  Nanos began_at_ = 0;
  Nanos asked_at_ = 0;
};

}  // namespace gradlane
