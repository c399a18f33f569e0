// segment.h - memory that is shared with a trainer: a memfd of fixed size and its mapping (control thread)
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/file_descriptor.h"
#include "base/shared_socket.h"

namespace gradlane {

// Shared memory of a trainer, with two descriptors: the trainer gets one for reading and writing, and by the other one
// the daemon sees whether any process still holds that one (held_memory.h). Nobody can open the file once more, because
// its mode is 0; only the daemon's user and root could change that. The memfd is sealed against any change of size, so
// that nothing a trainer does to it makes an access here fail. (A trainer may punch holes; they read as zeros.) The
// destructor unmaps the memory. Before that, every lane must have stopped using it.
class Segment {
 public:
  Segment() = default;
  // Maps `bytes` bytes of zeros; fill() allocates the memory itself. `name` is shown in /proc. Throws SetupError.
  Segment(const char* name, size_t bytes);
  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&& other) noexcept;
  ~Segment();

  // Allocates the next `at_most` bytes of memory and their page tables, so that no lane ever takes a page fault. The
  // caller repeats it until filled(), because one GiB takes about a third of a second. Throws SetupError if there is no
  // memory left.
  void fill(size_t at_most);
  [[nodiscard]] bool filled() const noexcept { return filled_ == bytes_; }

  [[nodiscard]] uint8_t* base() const noexcept { return base_; }
  [[nodiscard]] size_t bytes() const noexcept { return bytes_; }
  explicit operator bool() const noexcept { return base_ != nullptr; }

  // Returns the file descriptor to send to the trainer. The mapping stays after close_fd().
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  void close_fd() noexcept { fd_.reset(); }
  // Returns the descriptor for reading, which the segment then has no more.
  [[nodiscard]] SharedFile take_watch() noexcept { return std::move(watch_); }

 private:
  FileDescriptor fd_;
  SharedFile watch_;  // its close may free the memory
  uint8_t* base_ = nullptr;
  size_t bytes_ = 0;
  size_t filled_ = 0;
};

[[nodiscard]] size_t page_bytes() noexcept;

}  // namespace gradlane
