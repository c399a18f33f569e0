// test_eal.cc - DPDK's environment, and files, for tests of nodes in one process
#include "tests/dataplane/test_eal.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>

#include "dataplane/device/eal.h"

namespace gradlane::test {
namespace {

constexpr size_t kMemory = size_t{512} << 20;  // pages take memory only when they are used

struct Eal {
  Eal() : folder(new_folder("eal")) {
    setenv("RUNTIME_DIRECTORY", folder.c_str(), 1);
    start_eal({.memory_bytes = kMemory, .hugepages = false, .pci = {}, .verbose = false});
  }
  ~Eal() {
    stop_eal();
    std::error_code ignored;
    std::filesystem::remove_all(folder, ignored);
  }
  std::filesystem::path folder;
};

}  // namespace

void start_eal_once() { static const Eal eal; }

unsigned next_index() {
  static unsigned index = 0;
  return index++;
}

std::filesystem::path new_folder(const char* what) {
  std::string name = std::filesystem::temp_directory_path() / (std::string("gradlane-") + what + "-XXXXXX");
  if (mkdtemp(name.data()) == nullptr) {
    std::perror(name.c_str());
    std::abort();
  }
  return name;
}

std::string write_key(const std::filesystem::path& folder) {
  const std::filesystem::path file = folder / "key";
  std::ofstream(file) << std::string(64, 'a');
  std::filesystem::permissions(file, std::filesystem::perms::owner_read);
  return file;
}

}  // namespace gradlane::test
