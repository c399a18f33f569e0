// key_file_test.cc - key files of a ring: accepted files, and errors for the others
#include "dataplane/node/key_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <string>

#include "base/error.h"

namespace gradlane::test::key_file_test {
namespace {

RingKey::LinkKey key_of(const RingKey& key) {
  return key.link_key(Security::kEncrypted, EnvelopeKind::kData, {}, {}, {});
}

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
  // Returns the error about the file, without its name; "" if the file is accepted.
  [[nodiscard]] std::string fault() const {
    try {
      (void)read_key_file(path(), "auth.key_file " + path());
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
  std::array<uint8_t, 32> bytes;
  std::iota(bytes.begin(), bytes.end(), uint8_t{0});
  const RingKey want(bytes);
  std::string upper = kDigits;
  for (char& c : upper) c = static_cast<char>(std::toupper(c));
  for (const std::string& text : {kDigits, kDigits + "\n", kDigits + " \r\n\n", upper}) {
    write(text);
    EXPECT_EQ(key_of(read_key_file(path(), "auth.key_file " + path())), key_of(want)) << text;
  }
  write(kDigits + "20");
  EXPECT_NE(key_of(read_key_file(path(), "auth.key_file " + path())), key_of(want));
  write(std::string(1024, 'a'), 0400);
  EXPECT_EQ(fault(), "");
}

TEST_F(KeyFile, WrongTextsAreRefused) {
  const std::string allowed = ", allowed: 64 to 1024 hexadecimal digits, two for each byte, as gradlane key new writes";
  const struct {
    std::string text;
    std::string fault;
  } rows[] = {
      {"", "has 0 digits"},
      {kDigits.substr(2), "has 62 digits"},
      {kDigits + "0", "has 65 digits"},
      {std::string(1026, 'a'), "has 1026 digits"},
      {kDigits + "\n" + kDigits, "has characters that are not hexadecimal digits"},
      {"0x" + kDigits, "has characters that are not hexadecimal digits"},
      {std::string(32, '\x80'), "has characters that are not hexadecimal digits"},
      {kDigits + std::string(1, '\0'), "has characters that are not hexadecimal digits"},
  };
  for (const auto& row : rows) {
    write(row.text);
    EXPECT_EQ(fault(), row.fault + allowed) << row.text;
  }
  write(std::string(5000, 'a'));
  EXPECT_TRUE(fault().ends_with(allowed)) << fault();
}

TEST_F(KeyFile, WrongFilesAreRefused) {
  EXPECT_EQ(fault(), "cannot be read: No such file or directory; to make one: gradlane key new FILE");
  for (const mode_t mode : {0640U, 0604U, 0660U, 0610U, 0644U}) {
    write(kDigits, mode);
    EXPECT_TRUE(fault().starts_with("its mode is 06")) << mode << ": " << fault();
  }
  std::filesystem::remove(path());
  ASSERT_EQ(mkdir(path().c_str(), 0700), 0);
  EXPECT_EQ(fault(), "is not a regular file");
  ASSERT_EQ(rmdir(path().c_str()), 0);
  ASSERT_EQ(mkfifo(path().c_str(), 0600), 0);
  EXPECT_EQ(fault(), "is not a regular file");
}

TEST_F(KeyFile, OfSomebodyElseIsRefused) {
  write(kDigits);
  if (chown(path().c_str(), 65534, 65534) != 0) GTEST_SKIP() << "needs root";
  EXPECT_EQ(fault(), "belongs to uid 65534, allowed: uid 0 (root), or uid 0, which runs this program");
}

}  // namespace
}  // namespace gradlane::test::key_file_test
