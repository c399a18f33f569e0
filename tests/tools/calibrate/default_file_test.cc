// default_file_test.cc - the paths at which calibrations are written and looked for
#include "tools/calibrate/default_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>

#include "base/error.h"

namespace gradlane::test::default_file_test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kOfMachine = "/etc/gradlane/calibration.yaml";

// Saves a variable of the environment, and restores it in the destructor.
class Variable {
 public:
  explicit Variable(const char* name) : name_(name) {
    if (const char* const value = std::getenv(name)) before_ = value;
  }
  ~Variable() { before_ ? setenv(name_, before_->c_str(), 1) : unsetenv(name_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  const char* name_;
  std::optional<std::string> before_;
};

TEST(DefaultFile, Places) {
  const Variable config("XDG_CONFIG_HOME");
  const Variable home("HOME");
  setenv("XDG_CONFIG_HOME", "/home/x/cfg", 1);
  setenv("HOME", "/home/x", 1);
  EXPECT_EQ(calibration_places(), (std::vector<std::string>{"/home/x/cfg/gradlane/calibration.yaml", kOfMachine}));
  EXPECT_EQ(calibration_target(), geteuid() == 0 ? kOfMachine : "/home/x/cfg/gradlane/calibration.yaml");
  setenv("XDG_CONFIG_HOME", "not/absolute", 1);
  EXPECT_EQ(calibration_places().front(), "/home/x/.config/gradlane/calibration.yaml");
  unsetenv("XDG_CONFIG_HOME");
  unsetenv("HOME");
  EXPECT_EQ(calibration_places(), std::vector<std::string>{kOfMachine});
  if (geteuid() == 0) return;
  EXPECT_THROW((void)calibration_target(), SetupError);
}

std::string text_of(const fs::path& path) {
  std::ifstream in(path);
  return {std::istreambuf_iterator<char>(in), {}};
}

TEST(DefaultFile, IsThereAsAWhole) {
  const fs::path folder = fs::path(testing::TempDir()) / "default_file_test";
  fs::remove_all(folder);
  const fs::path path = folder / "new" / "calibration.yaml";
  {
    const NewFile given_up(path, true);
    EXPECT_TRUE(fs::is_empty(path.parent_path())) << "also where nobody gets to give it up";
  }
  EXPECT_THROW(NewFile((folder / "slip" / "file").string()), SetupError);
  EXPECT_FALSE(fs::exists(folder / "slip"));
  NewFile(path).put("one");
  EXPECT_EQ(text_of(path), "one");
  NewFile(path).put("two");
  EXPECT_EQ(text_of(path), "two");
  EXPECT_EQ(std::distance(fs::directory_iterator(path.parent_path()), {}), 1);
  EXPECT_EQ(fs::status(path).permissions(), fs::perms(0644));
  EXPECT_THROW(NewFile("/proc/nowhere/file", true), SetupError);
  EXPECT_THROW(NewFile(folder.string()), SetupError);
  EXPECT_THROW(NewFile("/dev/null"), SetupError);
  const fs::path link = folder / "link";
  fs::create_symlink(path, link);
  EXPECT_THROW(NewFile(link.string()), SetupError);
  fs::remove_all(folder);
}

}  // namespace
}  // namespace gradlane::test::default_file_test
