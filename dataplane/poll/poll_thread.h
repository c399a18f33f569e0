// poll_thread.h - what a thread that polls needs before its first round
#pragma once

namespace gradlane {

// Throws SetupError if this process may not run on that CPU, which the setting of that name asks for. Negative: any.
void check_core(int core, const char* setting);

// For the time of its life the calling thread runs on that CPU (negative: anywhere), and has an lcore id, with which
// packet pools have a cache for it; without one they are slower.
class PollThread {
 public:
  explicit PollThread(int core) noexcept;
  ~PollThread();
  PollThread(const PollThread&) = delete;
  PollThread& operator=(const PollThread&) = delete;

 private:
  bool registered_ = false;
};

}  // namespace gradlane
