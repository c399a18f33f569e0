// npy.h - reader for arrays of fp32 in NumPy's file format (set-up of benchmarks only)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gradlane {

inline constexpr size_t kMaxNpyBytes = size_t{1} << 30;  // limit for a file

// An array of two dimensions. An array of one dimension becomes one row.
struct NpyArray {
  size_t rows;
  size_t columns;
  std::vector<float> floats;  // row by row

  [[nodiscard]] std::span<const float> row(size_t i) const { return std::span(floats).subspan(i * columns, columns); }
};

// Reads a float32 array that numpy.save() wrote: format version 1.0 or 2.0, little-endian, in C order, one or two
// dimensions, not empty. `bytes` may be anything, and must end where the file ends. Throws SetupError, which begins
// with `name` and a colon, and says what was found and what is allowed.
// (https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html)
[[nodiscard]] NpyArray parse_npy(std::span<const uint8_t> bytes, std::string_view name);

// Reads a regular file of at most kMaxNpyBytes, and parses it as parse_npy() does.
[[nodiscard]] NpyArray load_npy(const std::string& path);

}  // namespace gradlane
