// machine_test.cc - host names as this machine resolves them
#include "tools/hosts/machine.h"

#include <gtest/gtest.h>

#include <string_view>
#include <vector>

#include "base/error.h"
#include "config/addresses.h"

namespace gradlane::test::machine_test {
namespace {

// getaddrinfo_a() uses threads of the C library, in which ThreadSanitizer ends the program.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define GRADLANE_NO_LOOK_UPS
#endif
#endif

TEST(Machine, KnowsItsLoopback) {
#ifdef GRADLANE_NO_LOOK_UPS
  GTEST_SKIP() << "ThreadSanitizer";
#endif
  const std::vector<FoundHost> found = look_up({{"127.0.0.1", 0}, {"localhost", 7}, {"fd00::1", 0}}, "--nodes");
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(ip_text(found[0].ips.at(0)), "127.0.0.1");
  EXPECT_TRUE(is_loopback(found[1].ips.at(0)));
  EXPECT_EQ(found[1].host.port, 7);
  EXPECT_EQ(ip_text(found[2].ips.at(0)), "fd00::1");
  for (const LocalIp& it : local_ips()) EXPECT_FALSE(it.interface.empty());
}

TEST(Machine, NamesWhatItDoesNotFind) {
#ifdef GRADLANE_NO_LOOK_UPS
  GTEST_SKIP() << "ThreadSanitizer";
#endif
  try {
    (void)look_up({{"localhost", 0}, {"gradlane-no-such.invalid", 0}}, "--nodes");
    FAIL();
  } catch (const SetupError& error) {
    EXPECT_TRUE(std::string_view(error.what()).starts_with("--nodes: cannot find gradlane-no-such.invalid ("))
        << error.what();
  }
}

}  // namespace
}  // namespace gradlane::test::machine_test
