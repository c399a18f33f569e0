// ring_key.cc - the secret of a ring, and the keys of links (any thread)
#include "dataplane/secure/ring_key.h"

#include <fmt/format.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>
#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string_view>

#include "base/error.h"

namespace gradlane {
namespace {

constexpr std::string_view kLinkLabel = "gradlane link 1";
constexpr std::string_view kIdLabel = "gradlane key id 1";
constexpr ssize_t kStartBytes = 12;  // random bytes of a life

// These functions of OpenSSL are deprecated, but those in their place need memory for each hash.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
class Sha256 {
 public:
  Sha256() { SHA256_Init(&state_); }
  Sha256& add(std::span<const uint8_t> bytes) noexcept {
    SHA256_Update(&state_, bytes.data(), bytes.size());
    return *this;
  }
  void finish(uint8_t* digest) noexcept {
    SHA256_Final(digest, &state_);
    OPENSSL_cleanse(&state_, sizeof(state_));
  }

 private:
  SHA256_CTX state_;
};
#pragma GCC diagnostic pop

class Writer {
 public:
  explicit Writer(uint8_t* to) : to_(to) {}
  void bytes(const void* from, size_t count) noexcept {
    std::memcpy(to_, from, count);
    to_ += count;
  }
  // The most significant byte comes first.
  void number(uint32_t value, unsigned bytes) noexcept {
    while (bytes-- != 0) *to_++ = static_cast<uint8_t>(value >> (8 * bytes));
  }

 private:
  uint8_t* to_;
};

}  // namespace

Life first_life() {
  Life life{};
  if (getrandom(life.data(), kStartBytes, 0) != kStartBytes) {
    throw SetupError(std::string("getrandom: ") + std::strerror(errno));
  }
  return life;
}

uint32_t epoch_of(const Life& life) noexcept {
  uint32_t epoch = 0;
  std::memcpy(&epoch, life.data() + kStartBytes, sizeof(epoch));
  return epoch;
}

bool of_one_start(const Life& one, const Life& other) noexcept {
  return std::memcmp(one.data(), other.data(), kStartBytes) == 0;
}

void begin_epoch(Life& life) noexcept {
  const uint32_t epoch = epoch_of(life) + 1;
  std::memcpy(life.data() + kStartBytes, &epoch, sizeof(epoch));
}

std::string key_name(uint16_t id) { return fmt::format("{:02x}{:02x}", id & 0xff, id >> 8); }

RingKey::RingKey(std::span<const uint8_t> secret) {
  std::array<uint8_t, kBlock> key{};
  if (secret.size() <= kBlock) {
    std::ranges::copy(secret, key.begin());
  } else {
    Sha256().add(secret).finish(key.data());
  }
  for (size_t i = 0; i < kBlock; ++i) {
    inner_[i] = key[i] ^ 0x36;
    outer_[i] = key[i] ^ 0x5c;
  }
  OPENSSL_cleanse(key.data(), key.size());
  const LinkKey digest = hmac({reinterpret_cast<const uint8_t*>(kIdLabel.data()), kIdLabel.size()});
  id_ = static_cast<uint16_t>(digest[0] | digest[1] << 8);
}

RingKey::~RingKey() {
  OPENSSL_cleanse(inner_.data(), kBlock);
  OPENSSL_cleanse(outer_.data(), kBlock);
}

RingKey::LinkKey RingKey::hmac(std::span<const uint8_t> text) const noexcept {
  LinkKey digest{};
  Sha256().add(inner_).add(text).finish(digest.data());
  Sha256().add(outer_).add(digest).finish(digest.data());
  return digest;
}

RingKey::LinkKey RingKey::link_key(Security security, EnvelopeKind kind, const Life& from, const Life& to,
                                   const LinkEnds& ends) const noexcept {
  constexpr size_t kBytes = kLinkLabel.size() + 2 + 2 * sizeof(Life) + 12 + 1;
  std::array<uint8_t, kBytes> info;
  Writer writer(info.data());
  writer.bytes(kLinkLabel.data(), kLinkLabel.size());
  writer.number(static_cast<uint8_t>(security), 1);
  writer.number(static_cast<uint8_t>(kind), 1);
  writer.bytes(from.data(), from.size());
  writer.bytes(to.data(), to.size());
  writer.number(ends.source_ip, 4);
  writer.number(ends.destination_ip, 4);
  writer.number(ends.source_port, 2);
  writer.number(ends.destination_port, 2);
  writer.number(1, 1);  // number of the block
  return hmac(info);
}

}  // namespace gradlane
