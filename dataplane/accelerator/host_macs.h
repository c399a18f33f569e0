// host_macs.h - which MAC addresses are the host's, by what it sends (worker thread only)
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace gradlane::accel {

inline constexpr size_t kMacBytes = 6;

// A switch may show us frames for other machines: nobody is to answer in their name.
class HostMacs {
 public:
  static constexpr size_t kMost = 16;  // one more takes the place of the oldest

  // The source of a frame that the host sent.
  void learn(const uint8_t* mac) noexcept {
    const uint64_t key = key_of(mac);
    if (key == last_ || (mac[0] & 1) != 0) return;
    last_ = key;
    if (std::find(macs_.begin(), macs_.end(), key) != macs_.end()) return;
    macs_[next_] = key;
    next_ = (next_ + 1) % kMost;
  }
  [[nodiscard]] bool has(const uint8_t* mac) const noexcept {
    return std::find(macs_.begin(), macs_.end(), key_of(mac)) != macs_.end();
  }

 private:
  // Never 0, which is a free place.
  static uint64_t key_of(const uint8_t* mac) noexcept {
    uint64_t key = 0;
    std::memcpy(&key, mac, kMacBytes);
    return key | uint64_t{1} << 63;
  }

  std::array<uint64_t, kMost> macs_{};
  uint64_t last_ = 0;  // most frames come from one
  size_t next_ = 0;
};

}  // namespace gradlane::accel
