// packet_auth.cc - tags that prove that a node with the ring's key made a packet (worker threads; no DPDK)
#include "dataplane/frame/packet_auth.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <sys/random.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/error.h"

namespace gradlane {
namespace {

constexpr std::string_view kLabel = "gradlane packets 1";

// The tag covers one contiguous range: the addresses at the end of the IP header, the UDP header, and the packet.
constexpr size_t kCovered = kEthernetBytes + kIpv4Bytes - 8;
constexpr size_t kChecksumField = kFrameBytes - 2;

}  // namespace

// ---- The key

RingKey::RingKey(std::span<const uint8_t> secret) : bytes_(std::min(secret.size(), kMostBytes)) {
  std::copy_n(secret.begin(), bytes_, secret_.begin());
}

RingKey::~RingKey() { OPENSSL_cleanse(secret_.data(), secret_.size()); }

// Computes one block of HKDF-Expand (RFC 5869). HKDF-Extract is not needed, as the secret is uniformly random.
RingKey::PacketKey RingKey::packet_key(uint32_t ip) const {
  std::array<uint8_t, kLabel.size() + 5> info;
  std::ranges::copy(kLabel, info.begin());
  for (size_t i = 0; i < 4; ++i) info[kLabel.size() + i] = static_cast<uint8_t>(ip >> (24 - 8 * i));
  info.back() = 1;
  PacketKey key{};
  unsigned bytes = 0;
  if (HMAC(EVP_sha256(), secret_.data(), static_cast<int>(bytes_), info.data(), info.size(), key.data(), &bytes) ==
          nullptr ||
      bytes != key.size()) {
    throw SetupError("libcrypto cannot compute HMAC-SHA256");
  }
  return key;
}

// ---- Tags

void Gmac::Free::operator()(evp_cipher_ctx_st* context) const noexcept { EVP_CIPHER_CTX_free(context); }

Gmac::Gmac(const RingKey& key, uint32_t ip) : context_(EVP_CIPHER_CTX_new()) {
  RingKey::PacketKey packet_key = key.packet_key(ip);
  const bool ready =
      context_ && EVP_EncryptInit_ex(context_.get(), EVP_aes_256_gcm(), nullptr, packet_key.data(), nullptr) == 1;
  OPENSSL_cleanse(packet_key.data(), packet_key.size());
  if (!ready) throw SetupError("libcrypto has no AES-256-GCM");
}

Gmac::~Gmac() = default;

bool Gmac::tag(const uint8_t* nonce, std::span<const uint8_t> data, uint8_t* tag) noexcept {
  EVP_CIPHER_CTX* const context = context_.get();
  int bytes = 0;
  // The key schedule is kept. GCM gets the bytes as "additional data", which it authenticates and does not encrypt.
  return EVP_EncryptInit_ex(context, nullptr, nullptr, nullptr, nonce) == 1 &&
         EVP_EncryptUpdate(context, nullptr, &bytes, data.data(), static_cast<int>(data.size())) == 1 &&
         EVP_EncryptFinal_ex(context, nullptr, &bytes) == 1 &&
         EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, static_cast<int>(kAuthTagBytes), tag) == 1;
}

PacketSigner::PacketSigner(const RingKey& key, uint32_t own_ip) : gmac_(key, own_ip) {
  std::array<uint8_t, kNonceBytes> first;
  while (getrandom(first.data(), first.size(), 0) != static_cast<ssize_t>(first.size())) {
  }
  std::memcpy(&low_, first.data(), sizeof(low_));
  std::memcpy(&high_, first.data() + sizeof(low_), sizeof(high_));
}

PacketSigner::PacketSigner(const RingKey& key, uint32_t own_ip, std::span<const uint8_t, kNonceBytes> first)
    : gmac_(key, own_ip) {
  std::memcpy(&low_, first.data(), sizeof(low_));
  std::memcpy(&high_, first.data() + sizeof(low_), sizeof(high_));
}

void PacketSigner::seal(uint8_t* frame, size_t bytes) noexcept {
  uint8_t* const nonce = frame + kFrameBytes + bytes;
  std::memcpy(nonce, &low_, sizeof(low_));
  std::memcpy(nonce + sizeof(low_), &high_, sizeof(high_));
  if (++low_ == 0) ++high_;
  uint8_t* const tag = nonce + kNonceBytes;
  const std::span<const uint8_t> covered(frame + kCovered, frame + kFrameBytes + bytes);
  // Without a valid tag, the receiver drops the packet.
  if (!gmac_.tag(nonce, covered, tag)) std::memset(tag, 0, kAuthTagBytes);
}

size_t PacketVerifier::open(uint8_t* frame, size_t bytes) noexcept {
  if (bytes < kAuthBytes) return kForged;
  const size_t packet = bytes - kAuthBytes;
  const uint8_t* const nonce = frame + kFrameBytes + packet;
  std::memset(frame + kChecksumField, 0, 2);
  std::array<uint8_t, kAuthTagBytes> tag;
  if (!gmac_.tag(nonce, {frame + kCovered, frame + kFrameBytes + packet}, tag.data())) return kForged;
  return CRYPTO_memcmp(tag.data(), nonce + kNonceBytes, kAuthTagBytes) == 0 ? packet : kForged;
}

}  // namespace gradlane
