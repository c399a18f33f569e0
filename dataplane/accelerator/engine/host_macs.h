// host_macs.h - which MAC addresses are the host's, by what it sends (worker thread only)
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/time.h"

namespace gradlane::accel {

// A switch may show us frames for other machines: nobody is to answer in their name. A host that is a bridge has the
// addresses of all who are behind it.
class HostMacs {
 public:
  static constexpr size_t kMacBytes = 6;
  static constexpr size_t kMost = 256;  // one more takes the place of one that was silent for longest, in its bucket
  static constexpr size_t kWays = 8;
  static constexpr Nanos kKept = 3600 * kSecond;  // after the last frame

  // The source of a frame that the host sent.
  void learn(const uint8_t* mac, Nanos now) noexcept {
    const uint64_t key = key_of(mac);
    // Most frames come from one.
    if ((key == last_ && now - last_at_ < kSecond) || (mac[0] & 1) != 0) return;
    last_ = key;
    last_at_ = now;
    Entry* const bucket = bucket_of(key);
    Entry* entry = std::find_if(bucket, bucket + kWays, [key](const Entry& it) { return it.key == key; });
    if (entry == bucket + kWays) {
      entry = std::min_element(bucket, bucket + kWays, [](const Entry& a, const Entry& b) { return a.at < b.at; });
    }
    *entry = {key, now};
  }
  [[nodiscard]] bool has(const uint8_t* mac, Nanos now) noexcept {
    const uint64_t key = key_of(mac);
    const Entry* const bucket = bucket_of(key);
    return std::any_of(bucket, bucket + kWays,
                       [key, now](const Entry& it) { return it.key == key && now - it.at < kKept; });
  }

 private:
  struct Entry {
    uint64_t key = 0;
    Nanos at = 0;
  };

  // Never 0, which is a free place.
  static uint64_t key_of(const uint8_t* mac) noexcept {
    uint64_t key = 0;
    std::memcpy(&key, mac, kMacBytes);
    return key | uint64_t{1} << 63;
  }
  Entry* bucket_of(uint64_t key) noexcept {
    return entries_.data() + (key * 0x9e3779b97f4a7c15 >> 32) % (kMost / kWays) * kWays;
  }

  std::array<Entry, kMost> entries_{};
  uint64_t last_ = 0;
  Nanos last_at_ = 0;
};

}  // namespace gradlane::accel
