// replay_main.cc - runs a fuzz target over the files and folders given as arguments, without a fuzzer
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

void replay(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::vector<char> bytes(std::istreambuf_iterator<char>(file), {});
  // The input is in a heap block of its exact size, as with a fuzzer.
  const std::vector<uint8_t> input(bytes.begin(), bytes.end());
  LLVMFuzzerTestOneInput(input.data(), input.size());
}

size_t replay_all(const std::filesystem::path& path) {
  if (!std::filesystem::is_directory(path)) {
    if (!std::filesystem::is_regular_file(path)) {
      throw std::filesystem::filesystem_error("cannot replay", path,
                                              std::make_error_code(std::errc::no_such_file_or_directory));
    }
    replay(path);
    return 1;
  }
  size_t files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(path)) {
    if (!entry.is_regular_file()) continue;
    replay(entry.path());
    ++files;
  }
  return files;
}

}  // namespace

int main(int argc, char** argv) try {
  size_t files = 0;
  for (int i = 1; i < argc; ++i) files += replay_all(argv[i]);
  std::printf("%zu inputs replayed\n", files);
  return files == 0 ? 1 : 0;  // an empty corpus tests nothing
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
