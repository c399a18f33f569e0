// test_eal.h - DPDK's environment, and files, for tests of nodes in one process
#pragma once

#include <filesystem>
#include <string>

namespace gradlane::test {

// Starts EAL as an ordinary user may: without hugepages, once in a process. Its sockets are in a folder of this
// process.
void start_eal_once();

// For names of DPDK's devices, rings and pools, which are not used twice in a process.
[[nodiscard]] unsigned next_index();

// A new one, which its maker removes.
[[nodiscard]] std::filesystem::path new_folder(const char* what);

// A key that a node takes, in a file of that folder; its path.
[[nodiscard]] std::string write_key(const std::filesystem::path& folder);

}  // namespace gradlane::test
