// host_claim_test.cc - claims of one daemon of a machine, and a second process that wants the same
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "base/error.h"
#include "dataplane/kernel/host_claim.h"

namespace gradlane::test::host_claim_test {
namespace {

TEST(HostClaim, NamesWhatItsProcessHasOnce) {
  const std::string what = "test " + std::to_string(getpid());
  claim_on_host(what, "stop it");
  claim_on_host(what, "stop it");
  const pid_t child = fork();
  if (child == 0) {
    try {
      claim_on_host(what, "stop it");
      _exit(1);
    } catch (const SetupError& error) {
      const std::string expected =
          "another gradlaned on this machine, process " + std::to_string(getppid()) + ", uses " + what + ": stop it";
      _exit(error.what() == expected ? 0 : 2);
    }
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace gradlane::test::host_claim_test
