// gcm.h - AES-GCM (NIST SP 800-38D) by Intel's IPsec-MB, or else by OpenSSL (any thread, one at a time)
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace gradlane {

inline constexpr size_t kNonceBytes = 12;
inline constexpr size_t kGcmTagBytes = 16;

// The functions do not allocate, lock or make a system call.
class Gcm {
 public:
  virtual ~Gcm() = default;

  // Sets a key of 16 or 32 bytes. Returns false if the library fails, which does not happen in practice; so do the
  // others.
  [[nodiscard]] virtual bool set_key(std::span<const uint8_t> key) noexcept = 0;
  // Encrypts `text` to `out`, which may be the same place, and writes kGcmTagBytes bytes of tag. The tag covers `aad`
  // too.
  [[nodiscard]] virtual bool seal(const uint8_t* nonce, std::span<const uint8_t> aad, std::span<const uint8_t> text,
                                  uint8_t* out, uint8_t* tag) noexcept = 0;
  // Decrypts `text` in place. Returns false if the tag is wrong; then `text` may be anything.
  [[nodiscard]] virtual bool open(const uint8_t* nonce, std::span<const uint8_t> aad, std::span<uint8_t> text,
                                  const uint8_t* tag) noexcept = 0;
};

// These throw SetupError.
[[nodiscard]] std::unique_ptr<Gcm> make_gcm();  // of the fastest library
[[nodiscard]] std::unique_ptr<Gcm> make_openssl_gcm();
// Returns the name of the library of make_gcm().
[[nodiscard]] const char* gcm_library() noexcept;

}  // namespace gradlane
