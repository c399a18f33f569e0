// recorder.h - takes a trace of one daemon, in a thread of its own
#pragma once

#include <atomic>
#include <string>
#include <thread>

#include "tools/trace/recording.h"

namespace gradlane {

// Asks for what has come every kEvery until finish(), or until the daemon does not answer any more: then what has come
// is kept.
class Recorder {
 public:
  // Starts the trace. Throws SetupError: nobody is there, somebody else takes one.
  explicit Recorder(std::string path);

  [[nodiscard]] const NodeRecording& recording() const noexcept { return recording_; }  // of before begin(), or after
  void begin();                                                                         // to fetch
  // Ends the trace, and fetches the rest. Only after begin().
  NodeRecording finish();
  // So many operations so far, for the screen.
  [[nodiscard]] size_t operations() const noexcept { return operations_.load(std::memory_order_relaxed); }
  [[nodiscard]] bool gone() const noexcept { return gone_.load(std::memory_order_relaxed); }

 private:
  // False: the daemon has more.
  bool ask(const std::string& request);
  void fetch(const std::stop_token& stop);

  NodeRecording recording_;
  uint64_t id_ = 0;
  bool on_ = true;                     // the last answer says so
  std::atomic<size_t> operations_{0};  // thread writes, main thread reads
  std::atomic<bool> gone_{false};      //   as well
  std::jthread thread_;
};

}  // namespace gradlane
