// profile_test.cc - profiles of models that are read, and profiles that are refused
#include "tools/plan/profile.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>

#include "base/error.h"

namespace gradlane::test::profile_test {
namespace {

std::string fault_of(const std::string& text) {
  try {
    (void)parse_profile(text, "p.json");
  } catch (const SetupError& error) {
    return error.what();
  }
  return "";
}

TEST(Profile, IsRead) {
  const Profile profile = parse_profile(
      R"({"name": "net", "batch": 32, "backward_ms": 40, "layers": [
          {"name": "a", "elements": 100, "backward_ms": 30}, {"name": "b", "elements": 50, "backward_ms": 10}]})",
      "p.json");
  EXPECT_EQ(profile.table.name, "net");
  EXPECT_EQ(profile.table.batch, 32U);
  EXPECT_DOUBLE_EQ(profile.table.backward, 0.04);
  EXPECT_DOUBLE_EQ(profile.forward, 0.02);
  EXPECT_EQ(profile.table.elements(), 150);
  EXPECT_EQ(profile.table.work(), 40);
}

TEST(Profile, WithoutTimesIsItsLayers) {
  const Profile profile =
      parse_profile(R"({"name": "n", "batch": 4, "layers": [{"name": "a", "elements": 7}]})", "p.json");
  EXPECT_EQ(profile.table.backward, 0);
  EXPECT_EQ(profile.table.elements(), 7);
}

TEST(Profile, WithoutTimesOfLayersGoesByElements) {
  const Profile profile = parse_profile(
      R"({"name": "net", "batch": 1, "forward_ms": 3, "backward_ms": 4, "layers": [{"name": "a", "elements": 7}]})",
      "p.json");
  EXPECT_EQ(profile.table.work(), 7);
  EXPECT_DOUBLE_EQ(profile.forward, 0.003);
}

TEST(Profile, SaysWhatIsWrong) {
  EXPECT_EQ(fault_of("nothing"), "p.json: is not a JSON object, so it is not a profile");
  EXPECT_EQ(fault_of("[]"), "p.json: is not a JSON object, so it is not a profile");
  EXPECT_EQ(fault_of("{}"), "p.json: name: is missing or not a text");
  EXPECT_EQ(fault_of(R"({"name": "n"})"), "p.json: batch: is missing, allowed: 1 to 1e+07");
  EXPECT_EQ(fault_of(R"({"name": "n", "batch": "4"})"), "p.json: batch: \"4\" is not a number, allowed: 1 to 1e+07");
  const std::string deep = std::string(200000, '[') + std::string(200000, ']');
  EXPECT_EQ(fault_of(R"({"name": "n", "batch": )" + deep + "}"),
            "p.json: batch: array is not a number, allowed: 1 to 1e+07");
  EXPECT_EQ(fault_of(R"({"name": "n", "batch": 4, "backward_ms": 1})"),
            "p.json: layers: must be a list of 1 to 100000 layers");
  EXPECT_EQ(fault_of(R"({"name": "n", "batch": 4, "backward_ms": 1, "layers": [{"name": "a", "elements": 0}]})"),
            "p.json: layers[0].elements: 0 is out of range, allowed: 1 to 1e+13");
  EXPECT_EQ(fault_of(R"({"name": "n", "batch": 4, "backward_ms": 1, "layers": [1]})"),
            "p.json: layers[0].: is not an object");
  EXPECT_EQ(fault_of(R"({"name": "n", "batch": 4, "backward_ms": 1, "layers": [
                         {"name": "a", "elements": 9, "backward_ms": 2}]})"),
            "p.json: layers[0].backward_ms: 2 is more than the backward_ms of all layers, 1");
  EXPECT_EQ(fault_of(R"({"name": "n\u001b[2J"})"), "p.json: name: has control characters");
  EXPECT_THROW((void)load_profile("/nowhere"), SetupError);
  EXPECT_THROW((void)load_profile("/dev/zero"), SetupError);
  const std::filesystem::path pipe = std::filesystem::path(testing::TempDir()) / "gradlane-profile-pipe";
  std::filesystem::remove(pipe);
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THROW((void)load_profile(pipe), SetupError);  // it does not wait for a writer
  std::filesystem::remove(pipe);
}

}  // namespace
}  // namespace gradlane::test::profile_test
