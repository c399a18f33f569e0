// envelope_test.cc - packets in envelopes: what opens, what does not, and the bytes that the documentation shows
#include "dataplane/secure/envelope.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>
#include <vector>

namespace gradlane::test::envelope_test {
namespace {

using Bytes = std::vector<uint8_t>;

std::array<uint8_t, 32> secret() {
  std::array<uint8_t, 32> bytes;
  std::iota(bytes.begin(), bytes.end(), uint8_t{0});
  return bytes;
}

constexpr LinkEnds kEnds{0x0a000001, 0x0a000002, 18400, 18401};
constexpr Security kAll[] = {Security::kAuthenticated, Security::kEncrypted, Security::kEncrypted128};

Bytes some_bytes(size_t count) {
  Bytes bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<uint8_t>(i * 37 + 5);
  return bytes;
}

// A cipher with its key.
struct Keyed {
  Keyed(const RingKey& with, Security security) : key(with), keys(with), cipher(security) {}
  const RingKey key;
  const KeyRing keys;
  LooseCipher cipher;
};

Bytes sealed_probe(Keyed& from, const Bytes& packet, const LinkEnds& ends = kEnds) {
  Bytes out(packet.size() + sealed_bytes(EnvelopeKind::kProbe));
  EXPECT_EQ(from.cipher.seal_probe(from.key, packet.data(), packet.size(), ends, out.data()), out.size());
  return out;
}

std::optional<size_t> opened(Keyed& by, Bytes& payload, const LinkEnds& ends = kEnds) {
  const auto envelope = envelope_of(payload);
  return envelope ? by.cipher.open(by.keys, *envelope, payload.data(), payload.size(), ends) : std::nullopt;
}

TEST(Envelopes, OpenWhatWasSealed) {
  const RingKey key(secret());
  for (const Security security : kAll) {
    Keyed sealer(key, security);
    Keyed opener(key, security);
    for (size_t bytes = 0; bytes < 300; ++bytes) {
      const Bytes packet = some_bytes(bytes);
      Bytes payload = sealed_probe(sealer, packet);
      ASSERT_EQ(opened(opener, payload), bytes);
      payload.resize(bytes);
      ASSERT_EQ(payload, packet);
    }
  }
}

TEST(Envelopes, OnlyEncryptedPacketsHideTheirBytes) {
  const RingKey key(secret());
  const Bytes packet = some_bytes(64);
  for (const Security security : kAll) {
    Keyed sealer(key, security);
    const Bytes payload = sealed_probe(sealer, packet);
    EXPECT_EQ(std::memcmp(payload.data(), packet.data(), packet.size()) == 0, security == Security::kAuthenticated);
  }
}

TEST(Envelopes, AnyChangedBitAndLengthIsNoticed) {
  const RingKey key(secret());
  for (const Security security : kAll) {
    Keyed sealer(key, security);
    Keyed opener(key, security);
    const Bytes payload = sealed_probe(sealer, some_bytes(50));
    for (size_t bit = 0; bit < payload.size() * 8; ++bit) {
      Bytes changed = payload;
      changed[bit / 8] = static_cast<uint8_t>(changed[bit / 8] ^ 1 << bit % 8);
      EXPECT_FALSE(opened(opener, changed)) << bit;
    }
    for (size_t bytes = 0; bytes < payload.size(); ++bytes) {
      Bytes tail(payload.end() - static_cast<ptrdiff_t>(bytes), payload.end());
      EXPECT_FALSE(opened(opener, tail)) << bytes;
      Bytes head(payload.begin(), payload.begin() + static_cast<ptrdiff_t>(bytes));
      EXPECT_FALSE(opened(opener, head)) << bytes;
    }
  }
}

TEST(Envelopes, OtherKeysEndsAndKindsOfSecurityAreRefused) {
  const RingKey key(secret());
  auto other = secret();
  other[31] ^= 1;
  Keyed sealer(key, Security::kEncrypted);
  Keyed opener(key, Security::kEncrypted);
  const Bytes payload = sealed_probe(sealer, some_bytes(100));
  const auto opens = [&payload](Keyed& by, const LinkEnds& ends) {
    Bytes copy = payload;
    return opened(by, copy, ends).has_value();
  };
  EXPECT_TRUE(opens(opener, kEnds));
  EXPECT_FALSE(opens(opener, kEnds.reversed()));
  EXPECT_FALSE(opens(opener, {kEnds.source_ip, 0x0a000003, kEnds.source_port, kEnds.destination_port}));
  EXPECT_FALSE(opens(opener, {kEnds.source_ip, kEnds.destination_ip, kEnds.source_port, 18402}));
  const RingKey other_key{std::span<const uint8_t>(other)};
  Keyed with_other(other_key, Security::kEncrypted);
  EXPECT_FALSE(opens(with_other, kEnds));
  for (const Security security : {Security::kAuthenticated, Security::kEncrypted128}) {
    Keyed it(key, security);
    EXPECT_FALSE(opens(it, kEnds));
  }
}

// Another implementation computed these bytes: docs/wire-format.md.
TEST(Envelopes, KeysAreThoseOfTheDocumentation) {
  const RingKey key(secret());
  Life from, to;
  from.fill(0x11);
  to.fill(0x22);
  const RingKey::LinkKey found = key.link_key(Security::kEncrypted, EnvelopeKind::kData, from, to, kEnds);
  std::string hex;
  for (const uint8_t byte : found) {
    hex += "0123456789abcdef"[byte >> 4];
    hex += "0123456789abcdef"[byte & 15];
  }
  EXPECT_EQ(hex, "4adf2aaefde47ceba8961c00c481f78f8ec43caa76c5d6f157b1c5489d8b28e8");
  EXPECT_EQ(key.id(), 0x5150);
}

}  // namespace
}  // namespace gradlane::test::envelope_test
