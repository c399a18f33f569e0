// npy_fuzz.cc - libFuzzer target: parses any bytes as a NumPy file
//
// Aborts unless the bytes are refused with an error that names the file, or give an array that is the end of these
// bytes. The array must be the same after it is written and read again.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "tools/bench/npy.h"

namespace gradlane::test {
namespace {

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "npy_fuzz: %s\n", what.c_str());
  std::abort();
}

std::optional<NpyArray> parse(std::span<const uint8_t> bytes) {
  try {
    return parse_npy(bytes, "fuzz.npy");
  } catch (const SetupError& error) {
    const std::string_view text = error.what();
    if (!text.starts_with("fuzz.npy: ") || text.size() > 1000) fail("refused with " + std::string(text));
    return std::nullopt;
  }
}

// Returns the file that numpy.save() makes of an array. An even number of columns gives a file of version 2, an odd one
// version 1.
std::vector<uint8_t> written(const NpyArray& array) {
  const std::string header = "{'descr': '<f4', 'fortran_order': False, 'shape': (" + std::to_string(array.rows) + ", " +
                             std::to_string(array.columns) + "), }\n";
  const bool long_header = array.columns % 2 == 0;
  std::string file = std::string("\x93NUMPY") + (long_header ? '\2' : '\1') + '\0';
  for (unsigned i = 0; i < (long_header ? 4 : 2); ++i) file += static_cast<char>(header.size() >> 8 * i);
  file += header;
  std::vector<uint8_t> bytes(file.begin(), file.end());
  const auto* const data = reinterpret_cast<const uint8_t*>(array.floats.data());
  bytes.insert(bytes.end(), data, data + array.floats.size() * sizeof(float));
  return bytes;
}

void execute(std::span<const uint8_t> bytes) {
  const auto array = parse(bytes);
  if (!array) return;
  const size_t size = array->floats.size() * sizeof(float);
  if (array->floats.empty() || array->floats.size() != array->rows * array->columns) fail("another shape");
  if (size >= bytes.size()) fail("more floats than the file has");
  const auto same = [size](const NpyArray& a, const uint8_t* data) {
    return std::memcmp(a.floats.data(), data, size) == 0;
  };
  if (!same(*array, bytes.data() + bytes.size() - size)) fail("other floats");
  if (array->row(array->rows - 1).size() != array->columns) fail("a last row of another length");
  const std::vector<uint8_t> file = written(*array);
  const auto again = parse(file);
  if (!again || again->rows != array->rows || again->columns != array->columns) fail("written otherwise than read");
  if (!same(*again, file.data() + file.size() - size)) fail("other floats when written again");
}

}  // namespace
}  // namespace gradlane::test

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  gradlane::test::execute({data, size});
  return 0;
}
