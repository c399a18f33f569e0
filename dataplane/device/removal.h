// removal.h - a watch for the removal of a device from the machine (control thread; DPDK's interrupt thread reports it)
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

namespace gradlane {

class RemovalWatch {
 public:
  // `id` is DPDK's number of the port, which must not be closed before this object is destroyed.
  explicit RemovalWatch(uint16_t id);
  ~RemovalWatch();
  RemovalWatch(const RemovalWatch&) = delete;
  RemovalWatch& operator=(const RemovalWatch&) = delete;

  // Returns true if the kernel has asked for the card and waits until the process gives it back, or if the card is
  // gone.
  [[nodiscard]] bool asked_for() const noexcept { return asked_for_.load(std::memory_order_acquire); }

 private:
  const uint16_t id_;
  std::string device_;                  // name of the device in DPDK; empty: it has none
  std::atomic<bool> asked_for_{false};  // DPDK's thread writes, the control thread reads
};

}  // namespace gradlane
