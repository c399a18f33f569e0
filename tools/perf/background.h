// background.h - other traffic during a measurement: bursts of TCP from each rank to the next (a thread of its own)
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "base/file_descriptor.h"

namespace gradlane {

class Trainer;

// Returns the IPv4 address of a network interface of this host, in host order. Throws SetupError if there is no
// interface of that name that is up and has one.
[[nodiscard]] uint32_t interface_address(const std::string& name);

// Opens kFlows TCP flows from each rank to the next. OptiReduce (NSDI 2025) uses as many processes for its heavy load.
// A call of burst() sends a number of bytes by all flows together, as fast as TCP takes them. The caller goes on
// meanwhile. Bytes from the previous rank are read and thrown away.
class Background {
 public:
  static constexpr unsigned kFlows = 16;

  // All ranks must construct this object at the same time, because they exchange the addresses where they listen.
  // Throws PerfError if a rank cannot connect to the next one, and SetupError as interface_address() does.
  Background(Trainer& trainer, const std::string& interface);
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

  void burst(uint64_t bytes) noexcept;

  // Waits until all bytes of bursts have arrived. Throws PerfError if that takes 20 s, or a flow has ended.
  void drain() const;

  // Throws PerfError if a flow has ended.
  void check() const;

 private:
  void connect_all(uint32_t address, uint16_t port, uint64_t token);
  void accept_all(uint64_t token);
  void serve() noexcept;

  FileDescriptor listener_;
  FileDescriptor bell_;  // an eventfd that wakes the thread: there are bytes to send, or the thread must end
  std::vector<FileDescriptor> to_next_;
  std::vector<FileDescriptor> from_before_;
  // bytes that burst() was asked to send since the start; written by the caller, read by the thread
  std::atomic<uint64_t> wanted_{0};
  std::atomic<uint64_t> sent_{0};  // bytes that were sent since the start; written by the thread, read by the caller
  std::atomic<bool> over_{false};  // the thread must end; written by the caller, read by the thread
  std::atomic<int> fault_{0};      // errno of the thread; read by the caller
  std::thread thread_;
};

}  // namespace gradlane
