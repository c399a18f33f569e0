// packet_auth.h - tags that show that a packet was made by a node with the ring's key (worker threads; no DPDK)
//
// docs/security.md says what that is for, docs/wire-format.md has the bytes. The tag is AES-256-GMAC (NIST SP 800-38D)
// over source and destination address and port, the length, and the gradlane packet. It stands behind the packet, with
// its nonce.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "dataplane/frame/frame.h"

struct evp_cipher_ctx_st;

namespace gradlane {

inline constexpr size_t kNonceBytes = 12;
inline constexpr size_t kAuthTagBytes = 16;
inline constexpr size_t kAuthBytes = kNonceBytes + kAuthTagBytes;  // behind the packet: the nonce, then the tag

// The key that all nodes of a ring share (set-up only).
class RingKey {
 public:
  using PacketKey = std::array<uint8_t, 32>;

  static constexpr size_t kLeastBytes = 32;
  static constexpr size_t kMostBytes = 512;

  // `secret`: kLeastBytes to kMostBytes.
  explicit RingKey(std::span<const uint8_t> secret);
  ~RingKey();
  RingKey(const RingKey&) = delete;
  RingKey& operator=(const RingKey&) = delete;

  // What the node with this address makes its tags with: no two nodes use the same AES key.
  [[nodiscard]] PacketKey packet_key(uint32_t ip) const;

 private:
  std::array<uint8_t, kMostBytes> secret_{};
  size_t bytes_ = 0;
};

// AES-256-GMAC with one key. No allocation, lock or system call after construction, which throws SetupError.
class Gmac {
 public:
  Gmac(const RingKey& key, uint32_t ip);
  ~Gmac();
  Gmac(Gmac&&) noexcept = default;
  Gmac& operator=(Gmac&&) noexcept = default;

  // Writes kAuthTagBytes bytes. False, which does not happen: libcrypto would not.
  [[nodiscard]] bool tag(const uint8_t* nonce, std::span<const uint8_t> data, uint8_t* tag) noexcept;

 private:
  struct Free {
    void operator()(evp_cipher_ctx_st* context) const noexcept;
  };
  std::unique_ptr<evp_cipher_ctx_st, Free> context_;
};

// What a node sends. One for each queue: nonces are counted from a random number of 96 bits on, so that neither two
// queues nor two lives of a node use one twice (docs/security.md has the odds).
class PacketSealer {
 public:
  PacketSealer(const RingKey& key, uint32_t own_ip);
  // With that first nonce, for tests.
  PacketSealer(const RingKey& key, uint32_t own_ip, std::span<const uint8_t, kNonceBytes> first);

  // Behind the kFrameBytes headers lie `bytes` bytes, and kAuthBytes more belong to it. The headers are written
  // already, for a payload of `bytes` + kAuthBytes, but for the UDP checksum, which is 0.
  void seal(uint8_t* frame, size_t bytes) noexcept;

 private:
  Gmac gmac_;
  uint64_t low_ = 0;
  uint32_t high_ = 0;
};

// What comes from one node.
class PacketOpener {
 public:
  PacketOpener(const RingKey& key, uint32_t ip) : gmac_(key, ip) {}

  // The frame was parsed: its payload has `bytes` bytes. Returns the length of the packet in front of the tag, or
  // kForged. Sets the UDP checksum to 0.
  static constexpr size_t kForged = ~size_t{0};
  [[nodiscard]] size_t open(uint8_t* frame, size_t bytes) noexcept;

 private:
  Gmac gmac_;
};

}  // namespace gradlane
