// host_macs.h - the MAC addresses of the host, learned from the frames that it sends (worker thread only)
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/time.h"

namespace gradlane::accel {

// A switch may send us frames for other machines, and no accelerator may answer for those. If the host is a bridge, the
// addresses of all machines behind it count as the host's.
class HostMacs {
 public:
  static constexpr size_t kMacBytes = 6;
  // Limit of addresses. A new address replaces the address of its bucket that was learned or refreshed longest ago.
  static constexpr size_t kMost = 256;
  static constexpr size_t kWays = 8;
  static constexpr Nanos kKept = 3600 * kSecond;  // time that an address is kept after its last frame

  // Learns the source address of a frame that the host sent.
  void learn(const uint8_t* mac, Nanos now) noexcept {
    const uint64_t key = key_of(mac);
    // Most frames have the same source address as the frame before, which is stored again only once a second. Multicast
    // addresses are not learned.
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

  // Returns a key that is never 0, because 0 marks a free entry.
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
