// poll_thread.h - set-up of a polling thread before its first round (control thread, then that thread)
#pragma once

namespace gradlane {

// Throws SetupError if this process may not run on CPU `core`, naming the setting `setting` that asks for it. A
// negative `core` means any CPU.
void check_core(int core, const char* setting);

// Pins the calling thread to a CPU (negative: any) and registers it with DPDK, from construction to destruction. A
// registered thread has an lcore id, for which packet pools keep a cache; without one they are slower.
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
