// frame_io.h - frames as the accelerator's engine sees them, and where they go (worker thread only)
#pragma once

#include <cstddef>
#include <cstdint>

namespace gradlane::accel {

// An Ethernet frame in a buffer of its own. Whoever has one owns it, until it hands it on.
struct Frame {
  uint8_t* data = nullptr;  // null: there is none
  size_t bytes = 0;         // of the frame, without FCS
  size_t room = 0;          // of the buffer, from data on
  void* owner = nullptr;    // whatever FrameIo knows the buffer by
};

// The shell around the engine. Nothing here waits.
class FrameIo {
 public:
  [[nodiscard]] virtual Frame allocate() noexcept = 0;  // room for a frame of the MTU; data null: no buffer is left
  virtual void release(const Frame& frame) noexcept = 0;
  virtual void to_wire(const Frame& frame) noexcept = 0;
  virtual void to_host(const Frame& frame) noexcept = 0;

 protected:
  ~FrameIo() = default;
};

}  // namespace gradlane::accel
