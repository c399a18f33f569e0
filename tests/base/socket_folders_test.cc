// socket_folders_test.cc - tests of the default folders of daemons' sockets, and of a user's private folder
#include "base/socket_folders.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/error.h"
#include "base/file_descriptor.h"
#include "base/listening_socket.h"

namespace gradlane::test::socket_folders_test {
namespace {

namespace fs = std::filesystem;
using Folders = std::vector<std::string>;

TEST(SocketFolders, Order) {
  EXPECT_EQ(socket_folders(7, "/run/user/7"), (Folders{"/run/gradlane", "/run/user/7/gradlane", "/tmp/gradlane-7"}));
  EXPECT_EQ(socket_folders(0, ""), (Folders{"/run/gradlane", "/tmp/gradlane-0"}));
  EXPECT_EQ(socket_folders(0, "x"), (Folders{"/run/gradlane", "/tmp/gradlane-0"}));
}

TEST(SocketFolders, WhatIsPrivate) {
  char name[] = "/tmp/gradlane-folder-XXXXXX";
  ASSERT_NE(mkdtemp(name), nullptr);
  const fs::path folder = name;
  EXPECT_TRUE(is_private_folder(folder, geteuid()));
  EXPECT_FALSE(is_private_folder(folder, geteuid() + 1));
  EXPECT_FALSE(is_private_folder(folder / "none", geteuid()));
  EXPECT_TRUE(can_hold_sockets(folder));
  EXPECT_TRUE(can_hold_sockets(folder / "none"));
  EXPECT_FALSE(can_hold_sockets(folder / "none/none"));
  std::ofstream(folder / "file") << "x";
  fs::permissions(folder / "file", fs::perms::owner_read);
  EXPECT_FALSE(is_private_folder(folder / "file", geteuid()));
  fs::create_directory_symlink(folder, folder / "link");
  EXPECT_FALSE(is_private_folder(folder / "link", geteuid()));
  for (const fs::perms more : {fs::perms::group_read, fs::perms::others_exec}) {
    fs::permissions(folder, fs::perms::owner_all | more);
    EXPECT_FALSE(is_private_folder(folder, geteuid()));
  }
  fs::permissions(folder, fs::perms::owner_all);
  fs::remove_all(folder);
}

TEST(SocketFolders, OwnInTmp) {
  // All tests that use this folder take this lock.
  const FileDescriptor lock(open("/tmp/gradlane-tests.lock", O_RDWR | O_CREAT | O_CLOEXEC, 0666));
  (void)flock(lock.get(), LOCK_EX);
  const fs::path folder = private_socket_folder(geteuid());
  if (fs::exists(folder)) GTEST_SKIP() << "this user has daemons";
  const std::string path = folder / "node0.sock";
  {
    const ListeningSocket socket(path);
    EXPECT_TRUE(is_private_folder(folder, geteuid()));
    EXPECT_TRUE(fs::is_socket(path));
  }
  EXPECT_FALSE(fs::exists(folder));
  const auto refusal = [&]() -> std::string {
    try {
      const ListeningSocket socket(path);
    } catch (const SetupError& error) {
      return error.what();
    }
    return "";
  };
  fs::create_directory(folder);
  fs::permissions(folder, fs::perms::owner_all | fs::perms::group_exec);
  EXPECT_EQ(refusal(), folder.string() +
                           " must be a folder of this user with mode 0700, as every folder for sockets in /tmp: remove "
                           "it, or choose another path for the socket (socket, or --set socket=PATH)");
  fs::permissions(folder, fs::perms::owner_all);
  EXPECT_EQ(refusal(), "");
  fs::rename(folder, folder.string() + "-real");
  fs::create_directory_symlink(folder.string() + "-real", folder);
  EXPECT_NE(refusal(), "");
  fs::remove(folder);
  fs::remove_all(folder.string() + "-real");
}

}  // namespace
}  // namespace gradlane::test::socket_folders_test
