// packet_auth_test.cc - tags that fit and tags that do not, without memory allocations
#include "dataplane/frame/packet_auth.h"

#include <gtest/gtest.h>
#include <openssl/crypto.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <numeric>
#include <string>

#include "tests/dataplane/frame/frame_fixture.h"

namespace gradlane::test::packet_auth_test {
namespace {

// Number of allocations by libcrypto.
size_t allocations = 0;
void* counted_malloc(size_t bytes, const char*, int) {
  ++allocations;
  return std::malloc(bytes);
}
void* counted_realloc(void* old, size_t bytes, const char*, int) {
  ++allocations;
  return std::realloc(old, bytes);
}
void counted_free(void* old, const char*, int) { std::free(old); }
// This runs before libcrypto has allocated anything.
const bool kCounting = CRYPTO_set_mem_functions(counted_malloc, counted_realloc, counted_free) == 1;

std::array<uint8_t, 32> secret() {
  std::array<uint8_t, 32> bytes;
  std::iota(bytes.begin(), bytes.end(), uint8_t{0});
  return bytes;
}

constexpr std::array<uint8_t, kNonceBytes> kFirst = {0xfe, 0xff, 0xff, 0xff, 0xff, 0xff,
                                                     0xff, 0xff, 0x11, 0x22, 0x33, 0x44};

// Returns a sealed frame from kOurIp to kTheirIp, as its receiver gets it.
Bytes sealed(PacketSigner& sealer, size_t bytes) {
  const Flow flow{kOurMac, kTheirMac, kOurIp, kTheirIp, kPort, kPort + 1};
  Bytes frame(kFrameBytes);
  const Bytes packet = some_bytes(bytes);
  frame.insert(frame.end(), packet.begin(), packet.end());
  frame.resize(frame.size() + kAuthBytes, 0xee);
  write_headers(frame.data(), flow, kTosRaw, bytes + kAuthBytes);
  sealer.seal(frame.data(), bytes);
  return frame;
}

std::string hex(const Bytes& frame, size_t from, size_t count) {
  std::string text;
  constexpr const char* kDigits = "0123456789abcdef";
  for (size_t i = from; i < from + count; ++i) {
    text += kDigits[frame[i] >> 4];
    text += kDigits[frame[i] & 15];
  }
  return text;
}

// ---- Tags

TEST(PacketAuth, OpensWhatWasSealed) {
  const RingKey key(secret());
  PacketSigner sealer(key, kOurIp);
  PacketVerifier opener(key, kOurIp);
  for (size_t bytes = 0; bytes < 400; ++bytes) {
    Bytes frame = sealed(sealer, bytes);
    ASSERT_EQ(opener.open(frame.data(), bytes + kAuthBytes), bytes);
  }
  Bytes jumbo = sealed(sealer, 8972 - kAuthBytes);
  seal_udp(jumbo.data(), 8972);  // the tag does not cover the UDP checksum
  EXPECT_EQ(opener.open(jumbo.data(), 8972), 8972 - kAuthBytes);
}

// Each flipped bit of the covered bytes, of the nonce or of the tag is noticed. Flipped bits elsewhere change nothing.
TEST(PacketAuth, AnyChangedBitIsNoticed) {
  const RingKey key(secret());
  PacketSigner sealer(key, kOurIp);
  PacketVerifier opener(key, kOurIp);
  const Bytes frame = sealed(sealer, 50);
  const size_t covered = kIp + 12;  // addresses, ports, length; not the checksum
  for (size_t bit = 0; bit < frame.size() * 8; ++bit) {
    Bytes changed = frame;
    changed[bit / 8] = static_cast<uint8_t>(changed[bit / 8] ^ 1 << bit % 8);
    const bool must_fail = bit / 8 >= covered && bit / 8 != kL4 + 6 && bit / 8 != kL4 + 7;
    EXPECT_EQ(opener.open(changed.data(), 50 + kAuthBytes), must_fail ? PacketVerifier::kForged : 50) << bit;
  }
}

TEST(PacketAuth, OtherKeysAndSendersAreRefused) {
  const RingKey key(secret());
  auto other = secret();
  other[31] ^= 1;
  PacketSigner sealer(key, kOurIp);
  PacketVerifier other_key(RingKey(other), kOurIp);
  PacketVerifier other_sender(key, kTheirIp);
  Bytes frame = sealed(sealer, 100);
  EXPECT_EQ(other_key.open(frame.data(), 100 + kAuthBytes), PacketVerifier::kForged);
  EXPECT_EQ(other_sender.open(frame.data(), 100 + kAuthBytes), PacketVerifier::kForged);
}

TEST(PacketAuth, OtherLengthsAreRefused) {
  const RingKey key(secret());
  PacketSigner sealer(key, kOurIp);
  PacketVerifier opener(key, kOurIp);
  const Bytes frame = sealed(sealer, 100);
  for (size_t bytes = 0; bytes < 100 + kAuthBytes; ++bytes) {
    Bytes exact(frame.begin(), frame.begin() + static_cast<ptrdiff_t>(kFrameBytes + bytes));
    EXPECT_EQ(opener.open(exact.data(), bytes), PacketVerifier::kForged) << bytes;
  }
}

// Nonces have 96 bits, and none is used twice. The lower 64 bits wrap around here.
TEST(PacketAuth, NoncesCount) {
  PacketSigner sealer(RingKey(secret()), kOurIp, kFirst);
  const size_t at = kFrameBytes + 10;
  EXPECT_EQ(hex(sealed(sealer, 10), at, kNonceBytes), "feffffffffffffff11223344");
  EXPECT_EQ(hex(sealed(sealer, 10), at, kNonceBytes), "ffffffffffffffff11223344");
  EXPECT_EQ(hex(sealed(sealer, 10), at, kNonceBytes), "000000000000000012223344");
}

TEST(PacketAuth, NoncesBeginAtRandom) {
  const RingKey key(secret());
  PacketSigner one(key, kOurIp);
  PacketSigner two(key, kOurIp);
  EXPECT_NE(hex(sealed(one, 0), kFrameBytes, kNonceBytes), hex(sealed(two, 0), kFrameBytes, kNonceBytes));
}

// Another implementation computed this tag. docs/wire-format.md has the commands.
TEST(PacketAuth, TagIsTheOneOfTheDocumentation) {
  PacketSigner sealer(RingKey(secret()), kOurIp, kFirst);
  const Bytes frame = sealed(sealer, 4);
  EXPECT_EQ(hex(frame, kIp + 12, 20), "0a0000010a00000247e047e10028000001081019");
  EXPECT_EQ(hex(frame, kFrameBytes + 4 + kNonceBytes, kAuthTagBytes), "a772894087513d1df30ae2b0567968bb");
}

TEST(PacketAuth, AllocatesNothing) {
  ASSERT_TRUE(kCounting);
  const RingKey key(secret());
  PacketSigner sealer(key, kOurIp);
  PacketVerifier opener(key, kOurIp);
  Bytes frame = sealed(sealer, 1000);
  const size_t before = allocations;
  EXPECT_NE(before, 0u);
  size_t opened = 0;
  for (int i = 0; i < 1000; ++i) {
    sealer.seal(frame.data(), 1000);
    opened += opener.open(frame.data(), 1000 + kAuthBytes) == 1000 ? 1 : 0;
    opened += opener.open(frame.data(), 900 + kAuthBytes) == PacketVerifier::kForged ? 1 : 0;
  }
  EXPECT_EQ(opened, 2000u);
  EXPECT_EQ(allocations, before);
}

}  // namespace
}  // namespace gradlane::test::packet_auth_test
