// ring_key.h - a secret that all nodes of a ring share, or two, and the keys of links that follow from it (any thread)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "config/config.h"

namespace gradlane {

// A life of an end of a link: 12 random bytes, which it chooses at its start, and its epoch. The epoch is a number of 4
// bytes, the least significant one first. It grows when the other end has started again.
using Life = std::array<uint8_t, 16>;
[[nodiscard]] Life first_life();  // in epoch 0; throws SetupError
[[nodiscard]] uint32_t epoch_of(const Life& life) noexcept;
[[nodiscard]] bool of_one_start(const Life& one, const Life& other) noexcept;
void begin_epoch(Life& life) noexcept;

// The use of a packet. Packets of different kinds have different keys.
enum class EnvelopeKind : uint8_t { kHello = 1, kData = 2, kProbe = 3 };

// The ends of one direction of a link: IPv4 addresses and UDP ports.
struct LinkEnds {
  uint32_t source_ip = 0;
  uint32_t destination_ip = 0;
  uint16_t source_port = 0;
  uint16_t destination_port = 0;
  [[nodiscard]] LinkEnds reversed() const noexcept {
    return {destination_ip, source_ip, destination_port, source_port};
  }
};

// Returns the id of a key as people see it: four hexadecimal digits, in the order of the bytes in packets.
[[nodiscard]] std::string key_name(uint16_t id);

class RingKey {
 public:
  using LinkKey = std::array<uint8_t, 32>;

  static constexpr size_t kLeastBytes = 32;
  static constexpr size_t kMostBytes = 512;

  // `secret` must have kLeastBytes to kMostBytes bytes, which are uniformly random.
  explicit RingKey(std::span<const uint8_t> secret);
  ~RingKey();
  RingKey(const RingKey& other) = default;
  RingKey& operator=(const RingKey&) = delete;

  bool operator==(const RingKey&) const = default;

  // A number that packets carry. Two keys seldom have the same one.
  [[nodiscard]] uint16_t id() const noexcept { return id_; }
  // Returns a key, made by one block of HKDF-Expand (RFC 5869), for packets of a kind in one direction. `to` is zero
  // for hellos and probes. Security::kEncrypted128 uses 16 bytes of it. Does not allocate.
  [[nodiscard]] LinkKey link_key(Security security, EnvelopeKind kind, const Life& from, const Life& to,
                                 const LinkEnds& ends) const noexcept;

 private:
  static constexpr size_t kBlock = 64;  // of SHA-256
  // HMAC-SHA256 (RFC 2104).
  [[nodiscard]] LinkKey hmac(std::span<const uint8_t> text) const noexcept;

  std::array<uint8_t, kBlock> inner_{};  // the secret XOR 0x36..., as HMAC's inner hash begins
  std::array<uint8_t, kBlock> outer_{};
  uint16_t id_ = 0;
};

}  // namespace gradlane
