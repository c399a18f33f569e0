// gcm.cc - AES-GCM by OpenSSL, and the choice of the library (any thread, one at a time)
#include "dataplane/secure/gcm.h"

#include <openssl/evp.h>

#include "base/error.h"
#include "dataplane/secure/ipsec_mb.h"

namespace gradlane {
namespace {

int length_of(std::span<const uint8_t> bytes) noexcept { return static_cast<int>(bytes.size()); }

class OpensslGcm final : public Gcm {
 public:
  OpensslGcm() {
    // Later calls with other keys and nonces allocate nothing.
    if (!made(seal_128_, EVP_aes_128_gcm()) || !made(seal_256_, EVP_aes_256_gcm()) ||
        !made(open_128_, EVP_aes_128_gcm()) || !made(open_256_, EVP_aes_256_gcm())) {
      throw SetupError("libcrypto has no AES-GCM");
    }
  }

  bool set_key(std::span<const uint8_t> key) noexcept override {
    const bool is_256 = key.size() == 32;
    seal_ = is_256 ? seal_256_.get() : seal_128_.get();
    open_ = is_256 ? open_256_.get() : open_128_.get();
    return EVP_EncryptInit_ex(seal_, nullptr, nullptr, key.data(), nullptr) == 1 &&
           EVP_DecryptInit_ex(open_, nullptr, nullptr, key.data(), nullptr) == 1;
  }

  bool seal(const uint8_t* nonce, std::span<const uint8_t> aad, std::span<const uint8_t> text, uint8_t* out,
            uint8_t* tag) noexcept override {
    int bytes = 0;
    return EVP_EncryptInit_ex(seal_, nullptr, nullptr, nullptr, nonce) == 1 &&
           (aad.empty() || EVP_EncryptUpdate(seal_, nullptr, &bytes, aad.data(), length_of(aad)) == 1) &&
           (text.empty() || EVP_EncryptUpdate(seal_, out, &bytes, text.data(), length_of(text)) == 1) &&
           EVP_EncryptFinal_ex(seal_, out, &bytes) == 1 &&
           EVP_CIPHER_CTX_ctrl(seal_, EVP_CTRL_AEAD_GET_TAG, int{kGcmTagBytes}, tag) == 1;
  }

  bool open(const uint8_t* nonce, std::span<const uint8_t> aad, std::span<uint8_t> text,
            const uint8_t* tag) noexcept override {
    int bytes = 0;
    return EVP_DecryptInit_ex(open_, nullptr, nullptr, nullptr, nonce) == 1 &&
           (aad.empty() || EVP_DecryptUpdate(open_, nullptr, &bytes, aad.data(), length_of(aad)) == 1) &&
           (text.empty() || EVP_DecryptUpdate(open_, text.data(), &bytes, text.data(), length_of(text)) == 1) &&
           EVP_CIPHER_CTX_ctrl(open_, EVP_CTRL_AEAD_SET_TAG, int{kGcmTagBytes}, const_cast<uint8_t*>(tag)) == 1 &&
           EVP_DecryptFinal_ex(open_, text.data(), &bytes) == 1;
  }

 private:
  struct Free {
    void operator()(EVP_CIPHER_CTX* context) const noexcept { EVP_CIPHER_CTX_free(context); }
  };
  using Context = std::unique_ptr<EVP_CIPHER_CTX, Free>;

  static bool made(const Context& context, const EVP_CIPHER* cipher) noexcept {
    return context != nullptr && EVP_CipherInit_ex(context.get(), cipher, nullptr, nullptr, nullptr, -1) == 1;
  }

  Context seal_128_{EVP_CIPHER_CTX_new()};
  Context seal_256_{EVP_CIPHER_CTX_new()};
  Context open_128_{EVP_CIPHER_CTX_new()};
  Context open_256_{EVP_CIPHER_CTX_new()};
  EVP_CIPHER_CTX* seal_ = seal_256_.get();
  EVP_CIPHER_CTX* open_ = open_256_.get();
};

}  // namespace

std::unique_ptr<Gcm> make_openssl_gcm() { return std::make_unique<OpensslGcm>(); }

std::unique_ptr<Gcm> make_gcm() {
  std::unique_ptr<Gcm> fast = make_ipsec_mb_gcm();
  return fast != nullptr ? std::move(fast) : make_openssl_gcm();
}

const char* gcm_library() noexcept { return make_ipsec_mb_gcm() != nullptr ? "IPsec-MB" : "OpenSSL"; }

}  // namespace gradlane
