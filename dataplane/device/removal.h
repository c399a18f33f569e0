// removal.h - hears that a device is taken out of the machine (control thread; told by DPDK's interrupt thread)
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace gradlane {

class Removal {
 public:
  // `id`: a port of DPDK, which must not be closed before this is destroyed.
  explicit Removal(uint16_t id);
  ~Removal();
  Removal(const Removal&) = delete;
  Removal& operator=(const Removal&) = delete;

  // The kernel has asked for the card, and waits until the process has given it back; or it is not there any more.
  [[nodiscard]] bool asked_for() const noexcept { return asked_for_.load(std::memory_order_acquire); }

 private:
  const uint16_t id_;
  std::string device_;                  // DPDK's name of it; empty: it has none
  std::atomic<bool> asked_for_{false};  // DPDK's thread writes, the control thread reads
};

}  // namespace gradlane
