// npy.cc - reader for arrays of fp32 in NumPy's file format (set-up of benchmarks only)
#include "tools/bench/npy.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <optional>
#include <system_error>

#include "base/error.h"
#include "base/parse.h"

namespace gradlane {
namespace {

static_assert(std::endian::native == std::endian::little, "floats are copied as they are in the file");

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr size_t kQuoted = 40;  // longest quotation from the file in an error
constexpr const char* kAllowed = "; allowed: float32 in C order, as numpy.save(file, array.astype('<f4')) writes it";

// Returns bytes from a file as text that a terminal can show.
std::string shown(std::string_view text) {
  std::string result;
  for (const char c : text.substr(0, kQuoted)) result += c >= ' ' && c <= '~' ? c : '?';
  return text.size() > kQuoted ? result + "..." : result;
}

[[noreturn]] void refuse(std::string_view name, const std::string& what) {
  throw SetupError(std::string(name) + ": " + what);
}

struct Header {
  std::string_view descr;
  bool fortran = false;
  std::vector<size_t> shape;
};

// Reads the header, which is a dictionary as Python writes it: its three keys in any order, and spaces anywhere. It
// understands no other Python syntax. Every take_...() moves past what it takes, and throws if it does not find it.
class HeaderReader {
 public:
  HeaderReader(std::string_view text, std::string_view name) : rest_(text), name_(name) {}

  Header read() {
    Header header;
    std::array<bool, 3> seen{};
    take('{');
    do {
      if (next() == '}') break;
      const std::string_view key = take_text();
      take(':');
      const size_t at = take_value(key, header);
      if (seen[at]) fail("the header has '" + std::string(key) + "' twice");
      seen[at] = true;
    } while (take_if(','));
    take('}');
    (void)next();
    if (!rest_.empty()) expected("the end of the header");
    if (!std::ranges::all_of(seen, [](bool it) { return it; })) {
      fail("the header lacks one of 'descr', 'fortran_order' and 'shape'");
    }
    return header;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const { refuse(name_, what + kAllowed); }
  [[noreturn]] void expected(const std::string& what) const {
    fail("expected " + what + " in the header, but there is '" + shown(rest_) + "'");
  }

  // Returns the next character that is no space; 0 at the end.
  char next() {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(" \n"), rest_.size()));
    return rest_.empty() ? '\0' : rest_.front();
  }

  bool take_if(char c) {
    if (next() != c) return false;
    rest_.remove_prefix(1);
    return true;
  }

  void take(char c) {
    if (!take_if(c)) expected(std::string("'") + c + "'");
  }

  std::string_view take_text() {
    const char quote = next();
    if (quote != '\'' && quote != '"') expected("a text in quotes");
    const size_t end = rest_.find(quote, 1);
    if (end == std::string_view::npos) expected("a text in quotes");
    const std::string_view text = rest_.substr(1, end - 1);
    rest_.remove_prefix(end + 1);
    return text;
  }

  bool take_bool() {
    (void)next();
    for (const bool value : {false, true}) {
      const std::string_view word = value ? "True" : "False";
      if (!rest_.starts_with(word)) continue;
      rest_.remove_prefix(word.size());
      return value;
    }
    expected("True or False");
  }

  std::vector<size_t> take_shape() {
    std::vector<size_t> shape;
    bool comma = false;
    take('(');
    while (next() != ')') {
      const auto size = take_decimal(rest_);
      if (!size) expected("a dimension");
      if (shape.size() == 2) fail("the array has more than two dimensions; allowed: (floats,) and (ranks, floats)");
      shape.push_back(*size);
      comma = take_if(',');
      if (!comma && next() != ')') expected("',' or ')'");
    }
    if (shape.size() == 1 && !comma) expected("','");  // (1) is no tuple
    take(')');
    return shape;
  }

  // Returns which of the three keys it was: 0, 1 or 2.
  size_t take_value(std::string_view key, Header& header) {
    if (key == "descr") {
      if (next() == '[') fail("the array has fields (" + shown(rest_) + ")");
      header.descr = take_text();
      return 0;
    }
    if (key == "fortran_order") {
      header.fortran = take_bool();
      return 1;
    }
    if (key == "shape") {
      header.shape = take_shape();
      return 2;
    }
    fail("the header has an unknown key '" + shown(key) + "'");
  }

  std::string_view rest_;
  std::string_view name_;
};

struct Parts {
  std::string_view header;
  std::span<const uint8_t> data;
};

// Splits a file into its header and its data.
Parts cut(std::span<const uint8_t> bytes, std::string_view name) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  constexpr size_t kVersion = kMagic.size();
  constexpr size_t kLength = kVersion + 2;
  if (!text.starts_with(kMagic)) refuse(name, "this is not a NumPy file: it does not begin with '\\x93NUMPY'");
  if (bytes.size() < kLength) refuse(name, "the file is cut off in its header");
  const unsigned major = bytes[kVersion];
  const unsigned minor = bytes[kVersion + 1];
  if ((major != 1 && major != 2) || minor != 0) {
    refuse(name, "format version " + std::to_string(major) + "." + std::to_string(minor) + "; allowed: 1.0 and 2.0");
  }
  const size_t width = major == 1 ? 2 : 4;  // bytes of the header's length, which is little-endian
  if (bytes.size() - kLength < width) refuse(name, "the file is cut off in its header");
  size_t length = 0;
  for (size_t i = 0; i < width; ++i) length |= size_t{bytes[kLength + i]} << 8 * i;
  const size_t begin = kLength + width;
  if (bytes.size() - begin < length) {
    refuse(name, "the file is cut off: its header has " + std::to_string(length) + " bytes, and " +
                     std::to_string(bytes.size() - begin) + " are there");
  }
  return {text.substr(begin, length), bytes.subspan(begin + length)};
}

// Returns the number of floats of both dimensions together; nothing if no file can have that many.
std::optional<size_t> product(size_t rows, size_t columns) {
  constexpr size_t kMost = kMaxNpyBytes / sizeof(float);
  if (rows == 0 || columns == 0) return 0;
  if (rows > kMost || columns > kMost / rows) return std::nullopt;
  return rows * columns;
}

}  // namespace

NpyArray parse_npy(std::span<const uint8_t> bytes, std::string_view name) {
  const Parts parts = cut(bytes, name);
  const Header header = HeaderReader(parts.header, name).read();
  if (header.descr != "<f4") refuse(name, "the array's type is '" + shown(header.descr) + "'" + kAllowed);
  if (header.fortran) refuse(name, std::string("the array is in Fortran order") + kAllowed);
  if (header.shape.empty()) refuse(name, "the array has no dimension; allowed: (floats,) and (ranks, floats)");
  const size_t columns = header.shape.back();
  const size_t rows = header.shape.size() == 2 ? header.shape.front() : 1;
  const auto floats = product(rows, columns);
  if (floats && *floats == 0) refuse(name, "the array is empty; allowed: at least one float");
  if (!floats || parts.data.size() != *floats * sizeof(float)) {
    refuse(name, "the shape is (" + std::to_string(rows) + ", " + std::to_string(columns) + "), but the file has " +
                     std::to_string(parts.data.size()) + " bytes after its header; allowed: 4 for each float");
  }
  NpyArray array{rows, columns, std::vector<float>(*floats)};
  std::memcpy(array.floats.data(), parts.data.data(), parts.data.size());
  return array;
}

NpyArray load_npy(const std::string& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (error) refuse(path, "cannot be opened: " + error.message());
  if (!std::filesystem::is_regular_file(status))
    refuse(path, "is not a regular file; allowed: a file that numpy.save() has written");
  const uintmax_t size = std::filesystem::file_size(path, error);
  if (error) refuse(path, "cannot be opened: " + error.message());
  if (size > kMaxNpyBytes) {
    refuse(path, "has " + std::to_string(size) + " bytes; allowed: at most " + std::to_string(kMaxNpyBytes));
  }
  std::ifstream file(path, std::ios::binary);
  std::vector<uint8_t> bytes(static_cast<size_t>(size));
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
  if (!file) refuse(path, std::string("cannot be read: ") + std::strerror(errno));
  return parse_npy(bytes, path);
}

}  // namespace gradlane
