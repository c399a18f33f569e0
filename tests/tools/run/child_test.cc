// child_test.cc - how processes that `gradlane run` has started have ended, in words and as an exit status
#include "tools/run/child.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <csignal>

namespace gradlane::test::run_child_test {
namespace {

TEST(RunChild, ExitStatusIsThatOfAShell) {
  EXPECT_EQ(exit_code_of(W_EXITCODE(0, 0)), 0);
  EXPECT_EQ(exit_code_of(W_EXITCODE(3, 0)), 3);
  EXPECT_EQ(exit_code_of(W_EXITCODE(0, SIGKILL)), 137);
  EXPECT_EQ(exit_code_of(W_EXITCODE(0, SIGSEGV) | WCOREFLAG), 139);
}

TEST(RunChild, EndingsInWords) {
  EXPECT_EQ(ending_text(W_EXITCODE(3, 0)), "exited with code 3");
  EXPECT_EQ(ending_text(W_EXITCODE(0, SIGTERM)), "was killed by SIGTERM");
}

}  // namespace
}  // namespace gradlane::test::run_child_test
