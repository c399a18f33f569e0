// read_file_test.cc - tests of reading files that users name: what is refused without waiting, and how much is read
#include "base/read_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace gradlane::test::read_file_test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kNotRegular = "it is not a regular file; put the text into one";

class ReadFile : public testing::Test {
 protected:
  ReadFile() { std::ofstream(path("text")) << "0123456789"; }
  ~ReadFile() override { fs::remove_all(folder_); }
  [[nodiscard]] std::string path(const std::string& name) const { return folder_ / name; }

 private:
  static fs::path make() {
    std::string name = fs::path(testing::TempDir()) / "gradlane-read-XXXXXX";
    EXPECT_NE(mkdtemp(name.data()), nullptr);
    return name;
  }
  fs::path folder_ = make();
};

TEST_F(ReadFile, RegularFiles) {
  fs::create_symlink(path("text"), path("link"));
  for (const char* const name : {"text", "link"}) {
    for (const size_t most : {0U, 1U, 9U, 10U, 11U, 1000U}) {
      const FileText file = read_file(path(name), most);
      EXPECT_EQ(file.fault, "");
      EXPECT_EQ(file.text, std::string("0123456789").substr(0, most)) << most;
    }
  }
  std::ofstream(path("empty")).flush();
  EXPECT_EQ(read_file(path("empty"), 9).text, "");
  EXPECT_EQ(read_file(path("empty"), 9).fault, "");
}

TEST_F(ReadFile, FilesThatDoNotKnowTheirSize) {
  std::string whole;
  std::getline(std::ifstream("/proc/self/cmdline"), whole, '\n');
  EXPECT_EQ(read_file("/proc/self/cmdline", 1 << 20).text, whole);
}

TEST_F(ReadFile, OthersAreRefusedAtOnce) {
  ASSERT_EQ(mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_EQ(read_file(path("pipe"), 9).fault, kNotRegular);
  EXPECT_EQ(read_file("/dev/zero", 9).fault, kNotRegular);
  EXPECT_EQ(read_file("/", 9).fault, kNotRegular);
  EXPECT_EQ(read_file(path("none"), 9).fault, "No such file or directory");
}

}  // namespace
}  // namespace gradlane::test::read_file_test
