// background.h - other traffic beside what is measured: bursts of TCP from each rank to the next (a thread of its own)
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

// The IPv4 address of a network interface of this host, in host order. Throws SetupError if it has none.
[[nodiscard]] uint32_t interface_address(const std::string& name);

// As many flows as OptiReduce (NSDI 2025) has processes for its heavy load: each rank connects so often to the rank
// after it. burst() has so many bytes sent by all of them together, as fast as TCP takes them, while the caller goes
// on; what comes from the rank before is read and thrown away.
class Background {
 public:
  static constexpr unsigned kFlows = 16;

  // All ranks at once: they tell each other where they listen. Throws PerfError where they do not reach each other.
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
  FileDescriptor bell_;  // an eventfd: there is something to send, or it is over
  std::vector<FileDescriptor> to_next_;
  std::vector<FileDescriptor> from_before_;
  std::atomic<uint64_t> wanted_{0};  // bytes to send since the start: written by the caller, read by the thread
  std::atomic<uint64_t> sent_{0};    // of these, by the thread
  std::atomic<bool> over_{false};    // the same
  std::atomic<int> fault_{0};        // errno, of the thread; read by the caller
  std::thread thread_;
};

}  // namespace gradlane
