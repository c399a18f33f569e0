// recorder.h - takes a trace of one daemon, in a thread of its own
#pragma once

#include <atomic>
#include <string>
#include <thread>

#include "tools/trace/recording.h"

namespace gradlane {

// Fetches new records every kEvery until finish(), or until the daemon does not answer any more. The records that have
// come by then are kept.
class Recorder {
 public:
  // Starts the trace. Throws SetupError if nobody answers, or if somebody else takes a trace.
  explicit Recorder(std::string path);

  // Returns the records. Must not be called while the thread runs.
  [[nodiscard]] const NodeRecording& recording() const noexcept { return recording_; }
  void begin();  // starts the thread, which fetches records
  // Ends the trace, and returns all records. May be called after begin() only.
  NodeRecording finish();
  // Returns the number of operations up to now, for the screen.
  [[nodiscard]] size_t operations() const noexcept { return operations_.load(std::memory_order_relaxed); }
  [[nodiscard]] bool gone() const noexcept { return gone_.load(std::memory_order_relaxed); }

 private:
  // Sends a request, and adds the answer to the records. Returns false if the daemon has more records to fetch.
  bool ask(const std::string& request);
  void fetch(const std::stop_token& stop);

  NodeRecording recording_;
  uint64_t id_ = 0;
  bool on_ = true;                     // the trace was still running at the last answer
  std::atomic<size_t> operations_{0};  // the thread writes, the main thread reads
  std::atomic<bool> gone_{false};      // the thread writes, the main thread reads
  std::jthread thread_;
};

}  // namespace gradlane
