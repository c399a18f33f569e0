// frame_io.h - frames of the accelerator's engine, and the interface through which it sends them (worker thread only)
#pragma once

#include <cstddef>
#include <cstdint>

namespace gradlane::accel {

// An Ethernet frame in a buffer of its own. The code that holds a frame owns it until it passes it on.
struct Frame {
  uint8_t* data = nullptr;  // null: there is none
  size_t bytes = 0;         // length of the frame, without FCS
  size_t room = 0;          // bytes of the buffer, from `data` on
  void* owner = nullptr;    // handle by which FrameIo knows the buffer
};

// The engine's interface to the code around it. No function of it waits.
class FrameIo {
 public:
  // gives room for a frame of the MTU; null `data`: no buffer is left
  [[nodiscard]] virtual Frame allocate() noexcept = 0;
  virtual void release(const Frame& frame) noexcept = 0;
  virtual void to_wire(const Frame& frame) noexcept = 0;
  virtual void to_host(const Frame& frame) noexcept = 0;

 protected:
  ~FrameIo() = default;
};

}  // namespace gradlane::accel
