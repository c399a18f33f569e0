// eal.h - DPDK's environment abstraction layer: once per process (control thread, at the start)
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "base/time.h"
#include "config/config.h"

namespace gradlane {

struct EalOptions {
  size_t memory_bytes = 0;  // for packet buffers
  bool hugepages = false;
  std::span<const std::string> pci;  // addresses (with devargs) of NICs that may be used; the others are left alone
  bool verbose = false;              // EAL's own messages below warnings
};

// Starts EAL without touching the caller's CPU affinity. Throws SetupError. Signals that must not end up in EAL's
// threads have to be blocked before.
void start_eal(const EalOptions& options);

// Lets DPDK give back what it holds. Nothing of it may be used after that; it cannot be started again.
void stop_eal();

// Nanoseconds of the time stamp counter: monotonic, the same in all threads, no system call.
[[nodiscard]] Nanos clock_now() noexcept;

}  // namespace gradlane
