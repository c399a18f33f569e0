// test_eal.h - DPDK's environment, and files, for tests of nodes in one process
#pragma once

#include <filesystem>
#include <string>

namespace gradlane::test {

// Starts EAL without hugepages, as an ordinary user may, and only once in a process. EAL's sockets are in a folder of
// this process.
void start_eal_once();

// Returns a number for names of DPDK's devices, rings and pools. DPDK accepts each name only once in a process.
[[nodiscard]] unsigned next_index();

// Makes a new folder, which the caller must remove.
[[nodiscard]] std::filesystem::path new_folder(const char* what);

// Writes a key that a node accepts into a file of that folder. Returns the file's path.
[[nodiscard]] std::string write_key(const std::filesystem::path& folder);

}  // namespace gradlane::test
