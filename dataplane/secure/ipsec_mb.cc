// ipsec_mb.cc - AES-GCM by Intel's Multi-Buffer Crypto for IPsec (any thread, one at a time)
#include "dataplane/secure/ipsec_mb.h"

#ifdef GRADLANE_IPSEC_MB
#define NO_COMPAT_IMB_API_053  // its old names, such as SHA1, are OpenSSL's too
#include <intel-ipsec-mb.h>
#include <openssl/crypto.h>

#include <array>
#endif

namespace gradlane {

#ifdef GRADLANE_IPSEC_MB
namespace {

// Functions for this CPU. They keep no state here, so all threads may call them.
const IMB_MGR* functions() noexcept {
  static const IMB_MGR* const manager = []() -> const IMB_MGR* {
    IMB_MGR* const it = alloc_mb_mgr(0);
    if (it == nullptr) return nullptr;
    init_mb_mgr_auto(it, nullptr);
    constexpr uint64_t kNeeded = IMB_FEATURE_AESNI | IMB_FEATURE_PCLMULQDQ;
    return (it->features & kNeeded) == kNeeded ? it : nullptr;
  }();
  return manager;
}

class IpsecMbGcm final : public Gcm {
 public:
  explicit IpsecMbGcm(const IMB_MGR* functions) : functions_(functions) {}
  ~IpsecMbGcm() override { OPENSSL_cleanse(&key_, sizeof(key_)); }

  bool set_key(std::span<const uint8_t> key) noexcept override {
    is_256_ = key.size() == 32;
    is_256_ ? IMB_AES256_GCM_PRE(functions_, key.data(), &key_) : IMB_AES128_GCM_PRE(functions_, key.data(), &key_);
    return true;
  }

  bool seal(const uint8_t* nonce, std::span<const uint8_t> aad, std::span<const uint8_t> text, uint8_t* out,
            uint8_t* tag) noexcept override {
    (is_256_ ? functions_->gcm256_enc : functions_->gcm128_enc)(&key_, &state_, out, text.data(), text.size(), nonce,
                                                                aad.data(), aad.size(), tag, kGcmTagBytes);
    return true;
  }

  bool open(const uint8_t* nonce, std::span<const uint8_t> aad, std::span<uint8_t> text,
            const uint8_t* tag) noexcept override {
    std::array<uint8_t, kGcmTagBytes> right;
    (is_256_ ? functions_->gcm256_dec : functions_->gcm128_dec)(&key_, &state_, text.data(), text.data(), text.size(),
                                                                nonce, aad.data(), aad.size(), right.data(),
                                                                kGcmTagBytes);
    return CRYPTO_memcmp(right.data(), tag, kGcmTagBytes) == 0;
  }

 private:
  const IMB_MGR* functions_;
  bool is_256_ = true;
  alignas(64) gcm_key_data key_{};
  alignas(64) gcm_context_data state_{};
};

}  // namespace

std::unique_ptr<Gcm> make_ipsec_mb_gcm() {
  return functions() == nullptr ? nullptr : std::make_unique<IpsecMbGcm>(functions());
}
#else
std::unique_ptr<Gcm> make_ipsec_mb_gcm() { return nullptr; }
#endif

}  // namespace gradlane
