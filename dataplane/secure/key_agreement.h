// key_agreement.h - a key for a pair of nodes from their public keys: X25519 (RFC 7748) and HKDF-SHA256 (RFC 5869)
// (set-up only)
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "dataplane/secure/ring_key.h"

struct evp_pkey_st;  // of OpenSSL

namespace gradlane {

using PublicKey = std::array<uint8_t, 32>;

// Holds a fresh private key.
class KeyAgreement {
 public:
  KeyAgreement();  // throws SetupError
  ~KeyAgreement();
  KeyAgreement(const KeyAgreement&) = delete;
  KeyAgreement& operator=(const KeyAgreement&) = delete;

  [[nodiscard]] const PublicKey& public_key() const noexcept { return public_; }
  // Returns the key shared with the owner of `other`. Throws SetupError if `other` is not a usable X25519 key.
  [[nodiscard]] RingKey key_with(const PublicKey& other) const;

 private:
  std::unique_ptr<evp_pkey_st, void (*)(evp_pkey_st*)> private_;
  PublicKey public_{};
};

}  // namespace gradlane
