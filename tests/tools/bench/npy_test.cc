// npy_test.cc - reads NumPy files as numpy.save() writes them, and refuses all others with an error that says why
#include "tools/bench/npy.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"

namespace gradlane::test::npy_test {
namespace {

std::string file_of(const std::string& header, size_t floats, int major = 1, int minor = 0) {
  std::string file = "\x93NUMPY";
  file += static_cast<char>(major);
  file += static_cast<char>(minor);
  for (size_t i = 0; i < (major == 1 ? 2U : 4U); ++i) file += static_cast<char>(header.size() >> 8 * i);
  file += header;
  for (size_t i = 0; i < floats; ++i) {
    const float value = static_cast<float>(i) - 0.5F;
    char bytes[sizeof value];
    std::memcpy(bytes, &value, sizeof value);
    file.append(bytes, sizeof value);
  }
  return file;
}

std::string header_of(const std::string& descr, const std::string& order, const std::string& shape) {
  return "{'descr': " + descr + ", 'fortran_order': " + order + ", 'shape': " + shape + ", }";
}

NpyArray parse(const std::string& file) {
  const std::vector<uint8_t> bytes(file.begin(), file.end());  // a buffer of the exact size, for sanitizers
  return parse_npy(bytes, "a.npy");
}

// Returns the error's text; "" if there is none.
std::string fault(const std::string& file) {
  try {
    (void)parse(file);
    return "";
  } catch (const SetupError& error) {
    return error.what();
  }
}

void expect_array(const std::string& file, size_t rows, size_t columns) {
  const NpyArray array = parse(file);
  EXPECT_EQ(array.rows, rows);
  EXPECT_EQ(array.columns, columns);
  ASSERT_EQ(array.floats.size(), rows * columns);
  for (size_t i = 0; i < rows; ++i) {
    ASSERT_EQ(array.row(i).size(), columns);
    EXPECT_EQ(array.row(i).front(), static_cast<float>(i * columns) - 0.5F);
  }
}

TEST(Npy, ReadsWhatNumPyWrites) {
  const std::string two = header_of("'<f4'", "False", "(2, 3)");
  expect_array(file_of(two + std::string(60, ' ') + "\n", 6), 2, 3);
  expect_array(file_of(two + "\n", 6, 2), 2, 3);
  expect_array(file_of(header_of("'<f4'", "False", "(5,)") + "  \n", 5), 1, 5);
  expect_array(file_of("{\"shape\":(1,4),\"descr\":\"<f4\",\"fortran_order\":False}", 4), 1, 4);
}

TEST(Npy, RefusesOtherArrays) {
  const struct {
    std::string descr, order, shape;
    const char* says;
  } cases[] = {
      {"'<f8'", "False", "(6,)", "type is '<f8'"},
      {"'>f4'", "False", "(6,)", "type is '>f4'"},
      {"'|O'", "False", "(6,)", "type is '|O'"},
      {"''", "False", "(6,)", "type is ''"},
      {"[('a', '<f4')]", "False", "(6,)", "has fields ([('a'"},
      {"'<f4'", "True", "(2, 3)", "Fortran order"},
      {"'<f4'", "None", "(2, 3)", "expected True or False"},
      {"'<f4'", "False", "()", "no dimension"},
      {"'<f4'", "False", "(1, 2, 3)", "more than two dimensions"},
      {"'<f4'", "False", "(0,)", "empty"},
      {"'<f4'", "False", "(0, 18446744073709551615)", "empty"},
      {"'<f4'", "False", "(6)", "expected ','"},
      {"'<f4'", "False", "6", "expected '('"},
      {"'<f4'", "False", "(-6,)", "expected a dimension"},
      {"'<f4'", "False", "(,)", "expected a dimension"},
      {"'<f4'", "False", "(2 3)", "expected ',' or ')'"},
      {"'<f4'", "False", "(99999999999999999999,)", "expected a dimension"},
      {"'<f4'", "False", "(5,)", "shape is (1, 5), but the file has 24 bytes"},
      {"'<f4'", "False", "(7,)", "shape is (1, 7), but the file has 24 bytes"},
      {"'<f4'", "False", "(18446744073709551615,)", "but the file has 24 bytes"},
      {"'<f4'", "False", "(4294967296, 4294967296)", "but the file has 24 bytes"},
      {"'<f4'", "False", "(4611686018427387905, 6)", "but the file has 24 bytes"},  // 24 bytes modulo 2^64
  };
  for (const auto& one : cases) {
    const std::string said = fault(file_of(header_of(one.descr, one.order, one.shape), 6));
    EXPECT_TRUE(said.starts_with("a.npy: ")) << said;
    EXPECT_NE(said.find(one.says), std::string::npos) << one.descr << one.order << one.shape << ": " << said;
    EXPECT_NE(said.find("allowed: "), std::string::npos) << said;
  }
}

TEST(Npy, RefusesHeadersOfOtherForms) {
  const std::string good = header_of("'<f4'", "False", "(6,)");
  const struct {
    std::string header;
    const char* says;
  } cases[] = {
      {"", "expected '{'"},
      {"{}", "lacks one of"},
      {"{'descr': '<f4', 'shape': (6,)}", "lacks one of"},
      {"{'descr': '<f4', 'descr': '<f4'}", "'descr' twice"},
      {"{'descr': '<f4', 'extra': 1}", "unknown key 'extra'"},
      {"{'descr\x1b[31m': '<f4'}", "unknown key 'descr?[31m'"},
      {"{'descr': '<f4", "a text in quotes"},
      {"{'descr': <f4}", "a text in quotes"},
      {"{descr: '<f4'}", "a text in quotes"},
      {"{'descr' '<f4'}", "expected ':'"},
      {"{'shape': (6", "expected ',' or ')'"},
      {"{'shape': (6,", "expected a dimension"},
      {"{'shape': (", "expected a dimension"},
      {"{'shape': ", "expected '('"},
      {good.substr(0, good.size() - 1), "a text in quotes"},
      {good.substr(0, good.size() - 3), "expected '}'"},
      {good + "; import os", "the end of the header"},
      {good + std::string(1, '\0'), "the end of the header"},
      {std::string(1 << 16, '{'), ""},  // too long for the length field of version 1.0, which becomes 0
  };
  for (const auto& one : cases) {
    const std::string said = fault(file_of(one.header, 6));
    EXPECT_TRUE(said.starts_with("a.npy: ")) << said;
    EXPECT_NE(said.find(one.says), std::string::npos) << one.header.substr(0, 80) << ": " << said;
    EXPECT_LT(said.size(), 250U) << said;
  }
}

TEST(Npy, RefusesOtherVersionsAndOtherFiles) {
  const std::string header = header_of("'<f4'", "False", "(6,)");
  for (const auto& [major, minor] : {std::pair{3, 0}, {1, 1}, {0, 0}, {255, 255}}) {
    const std::string said = fault(file_of(header, 6, major, minor));
    const std::string version = std::to_string(major) + "." + std::to_string(minor);
    EXPECT_EQ(said, "a.npy: format version " + version + "; allowed: 1.0 and 2.0");
  }
  EXPECT_NE(fault("").find("not a NumPy file"), std::string::npos);
  EXPECT_NE(fault("PK\x03\x04").find("not a NumPy file"), std::string::npos);  // .npz
}

TEST(Npy, RefusesEveryCut) {
  for (const int major : {1, 2}) {
    const std::string file = file_of(header_of("'<f4'", "False", "(2, 3)"), 6, major);
    for (size_t bytes = 0; bytes < file.size(); ++bytes) EXPECT_NE(fault(file.substr(0, bytes)), "") << bytes;
    EXPECT_NE(fault(file + "x"), "");
  }
  const std::string longest = std::string("\x93NUMPY\x02\x00\xff\xff\xff\xff{}", 14);
  EXPECT_NE(fault(longest).find("header has 4294967295 bytes, and 2 are there"), std::string::npos) << fault(longest);
}

TEST(Npy, OnlyFilesAreOpened) {
  for (const auto& [path, says] : {std::pair{"/nowhere/a.npy", "No such file"}, {"/", "is not a regular file"}}) {
    try {
      (void)load_npy(path);
      ADD_FAILURE() << path;
    } catch (const SetupError& error) {
      EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace gradlane::test::npy_test
