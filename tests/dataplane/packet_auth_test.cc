// packet_auth_test.cc - the ring's key file, tags that fit and tags that do not, and that they cost no allocation
#include "dataplane/packet_auth.h"

#include <gtest/gtest.h>
#include <openssl/crypto.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>

#include "compress/error.h"
#include "tests/dataplane/frame_fixture.h"

namespace gradlane::test {
namespace {

// Of libcrypto.
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
// Before libcrypto has allocated anything.
const bool kCounting = CRYPTO_set_mem_functions(counted_malloc, counted_realloc, counted_free) == 1;

std::array<uint8_t, 32> secret() {
  std::array<uint8_t, 32> bytes;
  std::iota(bytes.begin(), bytes.end(), uint8_t{0});
  return bytes;
}

constexpr std::array<uint8_t, kNonceBytes> kFirst = {0xfe, 0xff, 0xff, 0xff, 0xff, 0xff,
                                                     0xff, 0xff, 0x11, 0x22, 0x33, 0x44};

// A frame from us to them, sealed, as it is received.
Bytes sealed(PacketSealer& sealer, size_t bytes) {
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
  PacketSealer sealer(key, kOurIp);
  PacketOpener opener(key, kOurIp);
  for (size_t bytes = 0; bytes < 400; ++bytes) {
    Bytes frame = sealed(sealer, bytes);
    ASSERT_EQ(opener.open(frame.data(), bytes + kAuthBytes), bytes);
  }
  Bytes jumbo = sealed(sealer, 8972 - kAuthBytes);
  seal_udp(jumbo.data(), 8972);  // a checksum is no part of it
  EXPECT_EQ(opener.open(jumbo.data(), 8972), 8972 - kAuthBytes);
}

// Any one bit of what is covered, of the nonce and of the tag.
TEST(PacketAuth, AnyChangedBitIsNoticed) {
  const RingKey key(secret());
  PacketSealer sealer(key, kOurIp);
  PacketOpener opener(key, kOurIp);
  const Bytes frame = sealed(sealer, 50);
  const size_t covered = kIp + 12;  // addresses, ports, length; not the checksum
  for (size_t bit = 0; bit < frame.size() * 8; ++bit) {
    Bytes changed = frame;
    changed[bit / 8] = static_cast<uint8_t>(changed[bit / 8] ^ 1 << bit % 8);
    const bool must_fail = bit / 8 >= covered && bit / 8 != kL4 + 6 && bit / 8 != kL4 + 7;
    EXPECT_EQ(opener.open(changed.data(), 50 + kAuthBytes), must_fail ? PacketOpener::kForged : 50) << bit;
  }
}

TEST(PacketAuth, OtherKeysAndSendersAreRefused) {
  const RingKey key(secret());
  auto other = secret();
  other[31] ^= 1;
  PacketSealer sealer(key, kOurIp);
  PacketOpener other_key(RingKey(other), kOurIp);
  PacketOpener other_sender(key, kTheirIp);
  Bytes frame = sealed(sealer, 100);
  EXPECT_EQ(other_key.open(frame.data(), 100 + kAuthBytes), PacketOpener::kForged);
  EXPECT_EQ(other_sender.open(frame.data(), 100 + kAuthBytes), PacketOpener::kForged);
}

TEST(PacketAuth, OtherLengthsAreRefused) {
  const RingKey key(secret());
  PacketSealer sealer(key, kOurIp);
  PacketOpener opener(key, kOurIp);
  const Bytes frame = sealed(sealer, 100);
  for (size_t bytes = 0; bytes < 100 + kAuthBytes; ++bytes) {
    Bytes exact(frame.begin(), frame.begin() + static_cast<ptrdiff_t>(kFrameBytes + bytes));
    EXPECT_EQ(opener.open(exact.data(), bytes), PacketOpener::kForged) << bytes;
  }
}

// 96 bits, and nothing twice; the lower half wraps here.
TEST(PacketAuth, NoncesCount) {
  PacketSealer sealer(RingKey(secret()), kOurIp, kFirst);
  const size_t at = kFrameBytes + 10;
  EXPECT_EQ(hex(sealed(sealer, 10), at, kNonceBytes), "feffffffffffffff11223344");
  EXPECT_EQ(hex(sealed(sealer, 10), at, kNonceBytes), "ffffffffffffffff11223344");
  EXPECT_EQ(hex(sealed(sealer, 10), at, kNonceBytes), "000000000000000012223344");
}

TEST(PacketAuth, NoncesBeginAtRandom) {
  const RingKey key(secret());
  PacketSealer one(key, kOurIp);
  PacketSealer two(key, kOurIp);
  EXPECT_NE(hex(sealed(one, 0), kFrameBytes, kNonceBytes), hex(sealed(two, 0), kFrameBytes, kNonceBytes));
}

// By another implementation: docs/wire-format.md has the commands.
TEST(PacketAuth, TagIsTheOneOfTheDocumentation) {
  PacketSealer sealer(RingKey(secret()), kOurIp, kFirst);
  const Bytes frame = sealed(sealer, 4);
  EXPECT_EQ(hex(frame, kIp + 12, 20), "0a0000010a00000247e047e10028000001081019");
  EXPECT_EQ(hex(frame, kFrameBytes + 4 + kNonceBytes, kAuthTagBytes), "a772894087513d1df30ae2b0567968bb");
}

TEST(PacketAuth, AllocatesNothing) {
  ASSERT_TRUE(kCounting);
  const RingKey key(secret());
  PacketSealer sealer(key, kOurIp);
  PacketOpener opener(key, kOurIp);
  Bytes frame = sealed(sealer, 1000);
  const size_t before = allocations;
  EXPECT_NE(before, 0u);
  size_t opened = 0;
  for (int i = 0; i < 1000; ++i) {
    sealer.seal(frame.data(), 1000);
    opened += opener.open(frame.data(), 1000 + kAuthBytes) == 1000 ? 1 : 0;
    opened += opener.open(frame.data(), 900 + kAuthBytes) == PacketOpener::kForged ? 1 : 0;
  }
  EXPECT_EQ(opened, 2000u);
  EXPECT_EQ(allocations, before);
}

// ---- Key files

class KeyFile : public testing::Test {
 protected:
  void SetUp() override {
    std::string folder = testing::TempDir() + "gradlane-key-XXXXXX";
    ASSERT_NE(mkdtemp(folder.data()), nullptr);
    folder_ = folder;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::string path() const { return folder_ / "ring.key"; }
  void write(const std::string& text, mode_t mode = 0600) const {
    std::filesystem::remove(path());
    std::ofstream(path()) << text;
    ASSERT_EQ(chmod(path().c_str(), mode), 0);
  }
  // What is said against it, without its name; nothing: it is taken.
  [[nodiscard]] std::string fault() const {
    try {
      const RingKey key(path());
      return {};
    } catch (const SetupError& error) {
      const std::string start = "auth.key_file " + path() + ": ";
      EXPECT_TRUE(std::string(error.what()).starts_with(start)) << error.what();
      return std::string(error.what()).substr(start.size());
    }
  }

  std::filesystem::path folder_;
};

const std::string kDigits = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";

TEST_F(KeyFile, SaysTheSameAsItsBytes) {
  const RingKey want(secret());
  std::string upper = kDigits;
  for (char& c : upper) c = static_cast<char>(std::toupper(c));
  for (const std::string& text : {kDigits, kDigits + "\n", kDigits + " \r\n\n", upper}) {
    write(text);
    EXPECT_EQ(RingKey(path()).packet_key(kOurIp), want.packet_key(kOurIp)) << text;
  }
  write(kDigits + "20");
  EXPECT_NE(RingKey(path()).packet_key(kOurIp), want.packet_key(kOurIp));
  EXPECT_NE(want.packet_key(kOurIp), want.packet_key(kTheirIp));
  write(std::string(1024, 'a'), 0400);
  EXPECT_EQ(fault(), "");
}

TEST_F(KeyFile, WrongTextsAreRefused) {
  const std::string allowed =
      ", allowed: 64 to 1024 hexadecimal digits, two for each byte, as openssl rand -hex 32 writes";
  const struct {
    std::string text;
    std::string fault;
  } rows[] = {
      {"", "has 0 digits"},
      {kDigits.substr(2), "has 62 digits"},
      {kDigits + "0", "has 65 digits"},
      {std::string(1026, 'a'), "has 1026 digits"},
      {kDigits + "\n" + kDigits, "has other characters than digits"},
      {"0x" + kDigits, "has other characters than digits"},
      {std::string(32, '\x80'), "has other characters than digits"},
      {kDigits + std::string(1, '\0'), "has other characters than digits"},
  };
  for (const auto& row : rows) {
    write(row.text);
    EXPECT_EQ(fault(), row.fault + allowed) << row.text;
  }
  write(std::string(5000, 'a'));
  EXPECT_TRUE(fault().ends_with(allowed)) << fault();
}

TEST_F(KeyFile, WrongFilesAreRefused) {
  EXPECT_EQ(fault(),
            "cannot be read: No such file or directory; to make one: openssl rand -hex 32 > FILE; chmod 600 FILE");
  for (const mode_t mode : {0640U, 0604U, 0660U, 0610U, 0644U}) {
    write(kDigits, mode);
    EXPECT_TRUE(fault().starts_with("its mode is 06")) << mode << ": " << fault();
  }
  std::filesystem::remove(path());
  ASSERT_EQ(mkdir(path().c_str(), 0700), 0);
  EXPECT_EQ(fault(), "is no plain file");
  ASSERT_EQ(rmdir(path().c_str()), 0);
  ASSERT_EQ(mkfifo(path().c_str(), 0600), 0);
  EXPECT_EQ(fault(), "is no plain file");
}

TEST_F(KeyFile, OfSomebodyElseIsRefused) {
  write(kDigits);
  if (chown(path().c_str(), 65534, 65534) != 0) GTEST_SKIP() << "needs root";
  EXPECT_EQ(fault(), "belongs to the user with number 65534, allowed: root, or 0, who runs this");
}

}  // namespace
}  // namespace gradlane::test
