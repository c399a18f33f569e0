// segment.h - memory that is shared with a trainer: a memfd of fixed size, and where it is mapped (control thread)
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/file_descriptor.h"

namespace gradlane {

// The memfd is sealed against any change of size, so that nothing a trainer does to it makes an access here fail. (It
// may punch holes: those are zeros to whoever touches them next.) Unmapped with its owner, and no lane may touch it
// then.
class Segment {
 public:
  Segment() = default;
  // Maps `bytes` bytes of zeros; `name` is what /proc shows. The memory itself comes with fill(). Throws SetupError.
  Segment(const char* name, size_t bytes);
  Segment(Segment&& other) noexcept;
  Segment& operator=(Segment&& other) noexcept;
  ~Segment();

  // Gets the next `at_most` bytes of memory, and page tables for them, so that no lane ever takes a page fault. In
  // steps, because it takes about a third of a second per GiB. Throws SetupError where there is no memory left.
  void fill(size_t at_most);
  [[nodiscard]] bool filled() const noexcept { return filled_ == bytes_; }

  [[nodiscard]] uint8_t* base() const noexcept { return base_; }
  [[nodiscard]] size_t bytes() const noexcept { return bytes_; }
  explicit operator bool() const noexcept { return base_ != nullptr; }

  // To be sent to the trainer; the mapping stays without it.
  [[nodiscard]] int fd() const noexcept { return fd_.get(); }
  void close_fd() noexcept { fd_.reset(); }

 private:
  FileDescriptor fd_;
  uint8_t* base_ = nullptr;
  size_t bytes_ = 0;
  size_t filled_ = 0;
};

[[nodiscard]] size_t page_bytes() noexcept;

}  // namespace gradlane
