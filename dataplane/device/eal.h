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
  bool verbose = false;              // whether EAL also writes messages that are less serious than warnings
};

// Starts EAL without changing the caller's CPU affinity. Throws SetupError. Signals that EAL's threads must not receive
// have to be blocked before.
void start_eal(const EalOptions& options);

// Makes DPDK release what it holds. Nothing of DPDK may be used after that, and EAL cannot be started again.
void stop_eal();

// Returns nanoseconds of the time stamp counter. The clock is monotonic and the same in all threads, and needs no
// system call.
[[nodiscard]] Nanos clock_now() noexcept;

}  // namespace gradlane
