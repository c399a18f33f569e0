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

// Traces of a node. Memory is allocated when a trace is first requested, and kept for the next one. It is kMostBytes
// for records, and about as much for records that are not written yet. A trace ends when its client says so, when the
// client has not asked for a time of kLease, or after kLongest.
class NodeTrace {
 public:
  static constexpr Nanos kLease = 3 * kSecond;
  static constexpr Nanos kLongest = 700 * kSecond;
  static constexpr size_t kMostBytes = size_t{64} << 20;
  static constexpr size_t kMostWords = size_t{1} << 19;  // words of one log
  static constexpr size_t kLeastWords = size_t{1} << 12;
  static constexpr size_t kTakenAtOnce = size_t{1} << 16;  // most words that take() returns, roughly

  // Adds a lane while the node is made. The lane and its control channel must exist whenever another function is
  // called.
  void add(Lane& lane, unsigned number, ControlChannel& channel) {
    logs_.push_back({&lane, &channel, number, nullptr});
  }

  // Starts a trace and returns its number. Returns 0 if a trace is being taken. Also returns 0 while the client of the
  // latest trace has not fetched all of it, but still asks.
  [[nodiscard]] uint64_t start(Nanos now);
  // Notes that the client of trace `id` has asked for it. Returns false if this is not the latest trace: its records
  // may be gone.
  [[nodiscard]] bool renew(uint64_t id, Nanos now) noexcept;
  void stop() noexcept;
  // Returns whether workers have written all of their records.
  [[nodiscard]] bool over() const noexcept;
  [[nodiscard]] bool on() const noexcept { return on_; }
  // Ends a trace whose time is over. Called every 100 ms.
  void maintain(Nanos now) noexcept;

  struct Part {
    unsigned rank = 0;
    unsigned lane = 0;
    uint64_t dropped = 0;  // records that did not fit, so far
    uint64_t skipped = 0;  // operations that were not recorded
    std::vector<uint64_t> words;
  };
  // Takes records of all lanes: at most about kTakenAtOnce words, an equal share from each lane. Sets `more` if records
  // are left.
  [[nodiscard]] std::vector<Part> take(bool& more);

 private:
  [[nodiscard]] bool drained() const noexcept;

  struct Log {
    Lane* lane;
    ControlChannel* channel;
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
