// packet_auth.h - tags that prove that a node with the ring's key made a packet (worker threads; no DPDK)
//
// docs/security.md explains the purpose, and docs/wire-format.md shows the bytes. The tag is AES-256-GMAC (NIST SP
// 800-38D) over source and destination addresses and ports, the length, and the gradlane packet. The nonce and the tag
// follow the packet.
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
inline constexpr size_t kAuthBytes = kNonceBytes + kAuthTagBytes;  // bytes after the packet: the nonce, then the tag

// The secret key that all nodes of a ring share (used at set-up only).
class RingKey {
 public:
  using PacketKey = std::array<uint8_t, 32>;

  static constexpr size_t kLeastBytes = 32;
  static constexpr size_t kMostBytes = 512;

  // `secret` must have kLeastBytes to kMostBytes bytes.
  explicit RingKey(std::span<const uint8_t> secret);
  ~RingKey();
  RingKey(const RingKey&) = delete;
  RingKey& operator=(const RingKey&) = delete;

  // Derives the AES key with which the node with this address makes its tags. No two nodes use the same AES key.
  [[nodiscard]] PacketKey packet_key(uint32_t ip) const;

 private:
  std::array<uint8_t, kMostBytes> secret_{};
  size_t bytes_ = 0;
};

// AES-256-GMAC with one key. The constructor throws SetupError. The other functions do not allocate, lock or make a
// system call.
class Gmac {
 public:
  Gmac(const RingKey& key, uint32_t ip);
  ~Gmac();
  Gmac(Gmac&&) noexcept = default;
  Gmac& operator=(Gmac&&) noexcept = default;

  // Writes kAuthTagBytes bytes. Returns false if libcrypto fails, which does not happen in practice.
  [[nodiscard]] bool tag(const uint8_t* nonce, std::span<const uint8_t> data, uint8_t* tag) noexcept;

 private:
  struct Free {
    void operator()(evp_cipher_ctx_st* context) const noexcept;
  };
  std::unique_ptr<evp_cipher_ctx_st, Free> context_;
};

// Adds tags to the packets that a node sends; each queue has its own signer. Nonces count up from a random number of 96
// bits. So neither two queues nor two runs of a node use the same nonce (docs/security.md has the probability).
class PacketSigner {
 public:
  PacketSigner(const RingKey& key, uint32_t own_ip);
  // Starts with the nonce `first`, for tests.
  PacketSigner(const RingKey& key, uint32_t own_ip, std::span<const uint8_t, kNonceBytes> first);

  // Adds the nonce and the tag to a frame. `bytes` bytes of payload follow the kFrameBytes headers, and the buffer has
  // space for kAuthBytes more. The headers must be complete, for a payload of `bytes` + kAuthBytes, except that the UDP
  // checksum is 0.
  void seal(uint8_t* frame, size_t bytes) noexcept;

 private:
  Gmac gmac_;
  uint64_t low_ = 0;
  uint32_t high_ = 0;
};

// Checks the tags of the packets that one node sends.
class PacketVerifier {
 public:
  PacketVerifier(const RingKey& key, uint32_t ip) : gmac_(key, ip) {}

  // Checks the tag of a parsed frame whose payload has `bytes` bytes. Returns the length of the packet without the
  // nonce and the tag, or kForged. Sets the UDP checksum to 0.
  static constexpr size_t kForged = ~size_t{0};
  [[nodiscard]] size_t open(uint8_t* frame, size_t bytes) noexcept;

 private:
  Gmac gmac_;
};

}  // namespace gradlane
