// gcm_test.cc - AES-GCM by each library: NIST's vectors, tags that are wrong, the same bytes by both
#include "dataplane/secure/gcm.h"

#include <gtest/gtest.h>
#include <openssl/crypto.h>

#include <array>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "dataplane/secure/ipsec_mb.h"
#include "dataplane/secure/ring_key.h"

namespace gradlane::test::gcm_test {
namespace {

using Bytes = std::vector<uint8_t>;

Bytes bytes_of(const std::string& hex) {
  Bytes bytes;
  for (size_t i = 0; i < hex.size(); i += 2)
    bytes.push_back(static_cast<uint8_t>(std::stoul(hex.substr(i, 2), nullptr, 16)));
  return bytes;
}

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

// Test cases of McGrew and Viega, "The Galois/Counter Mode of Operation (GCM)", which NIST took over: 1 to 4 and 13 to
// 16. Cases with other lengths of nonces do not occur here.
struct Vector {
  std::string key, nonce, aad, text, cipher, tag;
};
const std::string kText =
    "d9313225f88406e5a55909c5aff5269a86a7a9531534f7da2e4c303d8a318a721c3c0c95956809532fcf0e2449a6b525b16aedf5aa0de657"
    "ba637b39";
const std::string kKey = "feffe9928665731c6d6a8f9467308308";
const std::string kNonce = "cafebabefacedbaddecaf888";
const std::string kAad = "feedfacedeadbeeffeedfacedeadbeefabaddad2";
const std::string kCipher128 =
    "42831ec2217774244b7221b784d0d49ce3aa212f2c02a4e035c17e2329aca12e21d514b25466931c7d8f6a5aac84aa051ba30b396a0aac97"
    "3d58e091";
const std::string kCipher256 =
    "522dc1f099567d07f47f37a32a84427d643a8cdcbfe5c0c97598a2bd2555d1aa8cb08e48590dbb3da7b08b1056828838c5f61e6393ba7a0a"
    "bcc9f662";
const Vector kVectors[] = {
    {std::string(32, '0'), std::string(24, '0'), "", "", "", "58e2fccefa7e3061367f1d57a4e7455a"},
    {std::string(32, '0'), std::string(24, '0'), "", std::string(32, '0'), "0388dace60b6a392f328c2b971b2fe78",
     "ab6e47d42cec13bdf53a67b21257bddf"},
    {kKey, kNonce, "", kText + "1aafd255", kCipher128 + "473f5985", "4d5c2af327cd64a62cf35abd2ba6fab4"},
    {kKey, kNonce, kAad, kText, kCipher128, "5bc94fbc3221a5db94fae95ae7121a47"},
    {std::string(64, '0'), std::string(24, '0'), "", "", "", "530f8afbc74536b9a963b4f1c4cb738b"},
    {std::string(64, '0'), std::string(24, '0'), "", std::string(32, '0'), "cea7403d4d606b6e074ec5d3baf39d18",
     "d0d1c8a799996bf0265b98b5d48ab919"},
    {kKey + kKey, kNonce, "", kText + "1aafd255", kCipher256 + "898015ad", "b094dac5d93471bdec1a502270e3cc6c"},
    {kKey + kKey, kNonce, kAad, kText, kCipher256, "76fc6ece0f4e1768cddf8853bb2d551b"},
};

class GcmLibraries : public testing::TestWithParam<std::unique_ptr<Gcm> (*)()> {
 protected:
  void SetUp() override {
    gcm_ = GetParam()();
    if (gcm_ == nullptr) GTEST_SKIP() << "built without IPsec-MB";
  }
  std::unique_ptr<Gcm> gcm_;
};
INSTANTIATE_TEST_SUITE_P(Each, GcmLibraries, testing::Values(make_openssl_gcm, make_ipsec_mb_gcm),
                         [](const auto& it) { return it.index == 0 ? "OpenSSL" : "IpsecMb"; });

TEST_P(GcmLibraries, VectorsOfNist) {
  for (const Vector& it : kVectors) {
    const Bytes key = bytes_of(it.key), nonce = bytes_of(it.nonce), aad = bytes_of(it.aad), text = bytes_of(it.text);
    ASSERT_TRUE(gcm_->set_key(key));
    Bytes out(text.size()), tag(kGcmTagBytes);
    ASSERT_TRUE(gcm_->seal(nonce.data(), aad, text, out.data(), tag.data()));
    EXPECT_EQ(out, bytes_of(it.cipher));
    EXPECT_EQ(tag, bytes_of(it.tag));
    EXPECT_TRUE(gcm_->open(nonce.data(), aad, out, tag.data()));
    EXPECT_EQ(out, text);
  }
}

TEST_P(GcmLibraries, AnyChangedBitIsNoticed) {
  ASSERT_TRUE(gcm_->set_key(bytes_of(kKey + kKey)));
  const Bytes text(100, 0x5a);
  Bytes all(kNonceBytes + 20 + text.size() + kGcmTagBytes, 1);
  uint8_t* const nonce = all.data();
  uint8_t* const aad = nonce + kNonceBytes;
  uint8_t* const out = aad + 20;
  uint8_t* const tag = out + text.size();
  ASSERT_TRUE(gcm_->seal(nonce, {aad, 20}, text, out, tag));
  const Bytes sealed = all;
  for (size_t bit = 0; bit < all.size() * 8; ++bit) {
    all = sealed;
    all[bit / 8] = static_cast<uint8_t>(all[bit / 8] ^ 1 << bit % 8);
    EXPECT_FALSE(gcm_->open(nonce, {aad, 20}, {out, text.size()}, tag)) << bit;
  }
}

TEST_P(GcmLibraries, MakesTheBytesOfOpenssl) {
  const auto other = make_openssl_gcm();
  std::mt19937_64 random(1);
  for (size_t round = 0; round < 300; ++round) {
    Bytes key(round % 2 == 0 ? 16 : 32), nonce(kNonceBytes), aad(random() % 80), text(random() % 3000);
    for (Bytes* const it : {&key, &nonce, &aad, &text}) {
      for (uint8_t& byte : *it) byte = static_cast<uint8_t>(random());
    }
    ASSERT_TRUE(gcm_->set_key(key));
    ASSERT_TRUE(other->set_key(key));
    Bytes out(text.size()), tag(kGcmTagBytes), other_out(text.size()), other_tag(kGcmTagBytes);
    ASSERT_TRUE(gcm_->seal(nonce.data(), aad, text, out.data(), tag.data()));
    ASSERT_TRUE(other->seal(nonce.data(), aad, text, other_out.data(), other_tag.data()));
    ASSERT_EQ(out, other_out);
    ASSERT_EQ(tag, other_tag);
    ASSERT_TRUE(other->open(nonce.data(), aad, out, tag.data()));
    ASSERT_EQ(out, text);
  }
}

TEST_P(GcmLibraries, AllocateNothing) {
  ASSERT_TRUE(kCounting);
  const auto openssl = make_openssl_gcm();
  const RingKey ring(Bytes(32, 7));
  const size_t before = allocations;
  EXPECT_NE(before, 0U);
  for (uint8_t i = 0; i < 50; ++i) {
    const RingKey::LinkKey key =
        ring.link_key(Security::kEncrypted, EnvelopeKind::kData, {i}, {}, {1, 2, 3, uint16_t{i}});
    ASSERT_TRUE(gcm_->set_key({key.data(), i % 2 == 0 ? size_t{16} : key.size()}));
    std::array<uint8_t, 1000> text{};
    std::array<uint8_t, kGcmTagBytes> tag{};
    ASSERT_TRUE(gcm_->seal(key.data(), key, text, text.data(), tag.data()));
    ASSERT_TRUE(gcm_->open(key.data(), key, text, tag.data()));
    ASSERT_FALSE(gcm_->open(key.data(), key, text, tag.data()));
  }
  EXPECT_EQ(allocations, before);
}

}  // namespace
}  // namespace gradlane::test::gcm_test
