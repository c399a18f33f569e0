// frame_io.h - frames of the accelerator's engine, and the interface through which it sends them (worker thread only)
#pragma once

#include <cstddef>
#include <cstdint>

namespace gradlane::accel {

// An Ethernet frame in its own buffer. The code that gets a frame owns it until it passes the frame on or releases it.
struct Frame {
  uint8_t* data = nullptr;  // first byte of the frame; null if there is no frame
  size_t bytes = 0;         // length of the frame, without FCS
  size_t room = 0;          // bytes of the buffer, from `data` on
  void* owner = nullptr;    // handle by which FrameIo knows the buffer
};

// The engine's interface to the code around it. None of its functions blocks.
class FrameIo {
 public:
  // Returns a frame with space for a packet of the MTU. Its `data` is null if no buffer is left.
  [[nodiscard]] virtual Frame allocate() noexcept = 0;
  virtual void release(const Frame& frame) noexcept = 0;
  virtual void to_wire(const Frame& frame) noexcept = 0;
  virtual void to_host(const Frame& frame) noexcept = 0;

 protected:
  ~FrameIo() = default;
};

}  // namespace gradlane::accel
