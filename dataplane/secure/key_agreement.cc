// key_agreement.cc - a key for a pair of nodes from their public keys (set-up only)
#include "dataplane/secure/key_agreement.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/kdf.h>
#include <openssl/params.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <string_view>

#include "base/error.h"

namespace gradlane {
namespace {

constexpr std::string_view kPairLabel = "gradlane pair 1";

template <auto kFree>
struct Freer {
  template <class T>
  void operator()(T* it) const noexcept {
    kFree(it);
  }
};
using Key = std::unique_ptr<EVP_PKEY, Freer<EVP_PKEY_free>>;
using KeyContext = std::unique_ptr<EVP_PKEY_CTX, Freer<EVP_PKEY_CTX_free>>;

[[noreturn]] void fail_agreement(const std::string& what) { throw SetupError("keys for pairs of nodes: " + what); }

// HKDF with no salt. `info` is the label and both public keys, in ascending order, so both ends derive the same key.
RingKey derive(std::span<const uint8_t> shared, const PublicKey& one, const PublicKey& two) {
  std::array<uint8_t, kPairLabel.size() + 2 * sizeof(PublicKey)> info;
  auto end = std::ranges::copy(kPairLabel, info.begin()).out;
  end = std::ranges::copy(std::min(one, two), end).out;
  std::ranges::copy(std::max(one, two), end);
  const std::unique_ptr<EVP_KDF, Freer<EVP_KDF_free>> kdf(EVP_KDF_fetch(nullptr, "HKDF", nullptr));
  const std::unique_ptr<EVP_KDF_CTX, Freer<EVP_KDF_CTX_free>> context(EVP_KDF_CTX_new(kdf.get()));
  std::string digest = "SHA256";
  const OSSL_PARAM parameters[] = {
      OSSL_PARAM_construct_utf8_string(OSSL_KDF_PARAM_DIGEST, digest.data(), 0),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_KEY, const_cast<uint8_t*>(shared.data()), shared.size()),
      OSSL_PARAM_construct_octet_string(OSSL_KDF_PARAM_INFO, info.data(), info.size()), OSSL_PARAM_construct_end()};
  std::array<uint8_t, RingKey::kLeastBytes> secret;
  if (context == nullptr || EVP_KDF_derive(context.get(), secret.data(), secret.size(), parameters) != 1) {
    fail_agreement("OpenSSL has no HKDF");
  }
  RingKey key{std::span<const uint8_t>(secret)};
  OPENSSL_cleanse(secret.data(), secret.size());
  return key;
}

}  // namespace

KeyAgreement::KeyAgreement() : private_(EVP_PKEY_Q_keygen(nullptr, nullptr, "X25519"), EVP_PKEY_free) {
  size_t bytes = public_.size();
  if (private_ == nullptr || EVP_PKEY_get_raw_public_key(private_.get(), public_.data(), &bytes) != 1) {
    fail_agreement("OpenSSL has no X25519");
  }
}

KeyAgreement::~KeyAgreement() = default;

RingKey KeyAgreement::key_with(const PublicKey& other) const {
  const Key theirs(EVP_PKEY_new_raw_public_key(EVP_PKEY_X25519, nullptr, other.data(), other.size()));
  const KeyContext context(EVP_PKEY_CTX_new(private_.get(), nullptr));
  std::array<uint8_t, 32> shared;
  size_t bytes = shared.size();
  // OpenSSL refuses the all-zero secret of low-order points (RFC 7748, 6.1).
  if (theirs == nullptr || context == nullptr || EVP_PKEY_derive_init(context.get()) != 1 ||
      EVP_PKEY_derive_set_peer(context.get(), theirs.get()) != 1 ||
      EVP_PKEY_derive(context.get(), shared.data(), &bytes) != 1) {
    fail_agreement("X25519 refuses a public key of another node");
  }
  RingKey key = derive(shared, public_, other);
  OPENSSL_cleanse(shared.data(), shared.size());
  return key;
}

}  // namespace gradlane
