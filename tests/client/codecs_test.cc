// codecs_test.cc - tests of what the client library reports about the daemon's codecs, from the table in shared memory
#include <gtest/gtest.h>

#include <cstddef>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "tests/client/client_fixture.h"

namespace gradlane::test::codecs_test {
namespace {

static_assert(sizeof(gradlane_codec_info) == 80 && offsetof(gradlane_codec_info, least) == 40);
static_assert(GRADLANE_CODEC_EXACT == GL_CODEC_EXACT && GRADLANE_CODEC_FEEDBACK == GL_CODEC_FEEDBACK);
static_assert(GRADLANE_CODEC_EXACT_SUMS == GL_CODEC_EXACT_SUMS && GRADLANE_CODEC_ADAPTIVE == GL_CODEC_ADAPTIVE);
static_assert(GRADLANE_CODEC_OWNED == GL_CODEC_OWNED && GRADLANE_CODEC_AGREES == GL_CODEC_AGREES);
static_assert(GRADLANE_CODEC_LOOKS == GL_CODEC_LOOKS && GRADLANE_CODEC_RATE == GL_CODEC_RATE);
static_assert(GRADLANE_CODEC_LATTICE == GL_CODEC_LATTICE && GRADLANE_CODEC_UNBIASED == GL_CODEC_UNBIASED);
static_assert(GRADLANE_CODEC_HALVES == GL_CODEC_HALVES && GRADLANE_CODEC_ROUNDS_ONCE == GL_CODEC_ROUNDS_ONCE);

gradlane_codec_info by_name(const Context& gl, const char* name) {
  gradlane_codec_info info = GRADLANE_CODEC_INFO_INIT;
  EXPECT_EQ(gradlane_find_codec(gl.get(), name, &info), GRADLANE_OK) << gradlane_error(gl.get());
  return info;
}

TEST(Codecs, Table) {
  FakeDaemon daemon({.lanes = 3});
  const Context gl = open_context(daemon);
  const std::vector<gl_codec_row> rows = fake_codecs();
  ASSERT_EQ(gradlane_codecs(gl.get()), rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    gradlane_codec_info info = GRADLANE_CODEC_INFO_INIT;
    ASSERT_EQ(gradlane_get_codec(gl.get(), i, &info), GRADLANE_OK);
    EXPECT_STREQ(info.word, rows[i].word);
    EXPECT_STREQ(info.usage, rows[i].usage);
    EXPECT_STREQ(info.example, rows[i].example);
    EXPECT_STREQ(info.option, rows[i].option);
    EXPECT_EQ(info.least, rows[i].least);
    EXPECT_EQ(info.most, rows[i].most);
    EXPECT_EQ(info.flags, rows[i].flags);
    EXPECT_EQ(info.states, rows[i].states);
    EXPECT_STREQ(info.variant, rows[i].variant);
    EXPECT_STREQ(info.promise, rows[i].promise);
    EXPECT_STREQ(info.source, rows[i].source);
  }
  EXPECT_EQ(daemon.codec_questions(), 1U);  // for gradlane_open()
  gradlane_codec_info info = GRADLANE_CODEC_INFO_INIT;
  EXPECT_EQ(gradlane_get_codec(gl.get(), rows.size(), &info), GRADLANE_BAD_ARGUMENT);
  EXPECT_SAYS(gl.get(), "there is no codec 2; the daemon has 2");
  EXPECT_EQ(gradlane_codecs(nullptr), 0U);
}

TEST(Codecs, ByName) {
  FakeDaemon daemon({});
  const Context gl = open_context(daemon);
  const gradlane_codec_info fixed = by_name(gl, "fixed:7");
  EXPECT_STREQ(fixed.usage, "fixed:B");
  EXPECT_EQ(fixed.flags, GRADLANE_CODEC_FEEDBACK | GRADLANE_CODEC_EXACT_SUMS | GRADLANE_CODEC_ADAPTIVE);
  EXPECT_STREQ(by_name(gl, nullptr).word, "fixed");
  EXPECT_EQ(by_name(gl, "raw").flags, GRADLANE_CODEC_EXACT);
  EXPECT_EQ(by_name(gl, "raw").most, 0U);
  gradlane_codec_info info = GRADLANE_CODEC_INFO_INIT;
  EXPECT_EQ(gradlane_find_codec(gl.get(), "fixd:7", &info), GRADLANE_BAD_ARGUMENT);
  EXPECT_SAYS(gl.get(), "there is no codec 'fixd:7'");
  info.struct_size = 48;
  EXPECT_EQ(gradlane_find_codec(gl.get(), "raw", &info), GRADLANE_BAD_ARGUMENT);
  EXPECT_SAYS(gl.get(), "struct_size is 48; set it to 80");
  EXPECT_EQ(gradlane_find_codec(gl.get(), "raw", nullptr), GRADLANE_BAD_ARGUMENT);
}

// Programs of version 5 of the interface have a shorter struct.
TEST(Codecs, OlderProgram) {
  FakeDaemon daemon({});
  const Context gl = open_context(daemon);
  gradlane_codec_info info = GRADLANE_CODEC_INFO_INIT;
  info.struct_size = 56;
  info.promise = "mine";
  ASSERT_EQ(gradlane_find_codec(gl.get(), "fixed:7", &info), GRADLANE_OK);
  EXPECT_STREQ(info.word, "fixed");
  EXPECT_EQ(info.states, 1U);
  EXPECT_EQ(info.struct_size, 56U);
  EXPECT_STREQ(info.promise, "mine");
}

TEST(Codecs, MoreStatesThanThereCanBe) {
  std::vector<gl_codec_row> rows = fake_codecs();
  rows[1].states = 3;
  FakeDaemon daemon({.codec = "raw", .codecs = rows});
  const Context gl = open_context(daemon);
  gradlane_codec_info info = GRADLANE_CODEC_INFO_INIT;
  EXPECT_EQ(gradlane_find_codec(gl.get(), "fixed:7", &info), GRADLANE_VERSION);
  EXPECT_SAYS(gl.get(), "says that a residual of codec fixed:7 has 3 arrays");
}

// An older daemon has the same version of the ABI, but no table of codecs.
TEST(Codecs, OlderDaemon) {
  FakeDaemon daemon({.codecs = {}});
  const Context gl = open_context(daemon);
  EXPECT_EQ(gradlane_codecs(gl.get()), 0U);
  const gradlane_codec_info fixed = by_name(gl, "fixed:7");
  EXPECT_STREQ(fixed.word, "");
  EXPECT_EQ(fixed.flags, GRADLANE_CODEC_FEEDBACK | GRADLANE_CODEC_EXACT_SUMS | GRADLANE_CODEC_ADAPTIVE);
  EXPECT_EQ(by_name(gl, "raw").flags, GRADLANE_CODEC_EXACT);
  float* const data = allocate(gl, 2048);
  gradlane_how how = GRADLANE_HOW_INIT;
  how.codec = "raw";
  how.residual = allocate(gl, 2048);
  EXPECT_EQ(gradlane_all_reduce(gl.get(), data, 2048, GRADLANE_FLOAT32, &how, nullptr), GRADLANE_BAD_ARGUMENT);
  EXPECT_STREQ(gradlane_error(gl.get()), "all_reduce: codec raw takes no residual");
  how = GRADLANE_HOW_INIT;
  how.codec = "fixed:7";
  EXPECT_EQ(gradlane_broadcast(gl.get(), data, 2048, GRADLANE_FLOAT32, 0, &how, nullptr), GRADLANE_BAD_ARGUMENT);
  EXPECT_SAYS(gl.get(), "copies are exact; use no codec");
}

// A newer daemon's rows are longer, with fields that this library does not know.
TEST(Codecs, NewerDaemon) {
  std::vector<gl_codec_row> halves(4);
  const std::vector<gl_codec_row> rows = fake_codecs();
  halves[0] = rows[0];
  halves[2] = rows[1];
  std::memset(&halves[1], 0xff, sizeof halves[1]);
  halves[3] = halves[1];
  FakeDaemon daemon({.codecs = halves, .control = [](gl_control& control) {
                       control.codecs = 2;
                       control.codec_row_bytes = 2 * sizeof(gl_codec_row);
                     }});
  const Context gl = open_context(daemon);
  ASSERT_EQ(gradlane_codecs(gl.get()), 2U);
  EXPECT_STREQ(by_name(gl, "fixed:7").example, "fixed:10");
}

TEST(Codecs, TextsEnd) {
  gl_codec_row row;
  std::memset(&row, 'x', sizeof row);
  FakeDaemon daemon({.codecs = {row}});
  const Context gl = open_context(daemon);
  gradlane_codec_info info = GRADLANE_CODEC_INFO_INIT;
  ASSERT_EQ(gradlane_get_codec(gl.get(), 0, &info), GRADLANE_OK);
  EXPECT_EQ(info.word, std::string(GL_NAME - 1, 'x'));
  EXPECT_EQ(info.usage, std::string(GL_NAME - 1, 'x'));
  EXPECT_EQ(info.example, std::string(GL_NAME - 1, 'x'));
  EXPECT_EQ(info.option, std::string(GL_OPTION - 1, 'x'));
  EXPECT_EQ(info.variant, std::string(GL_OPTION - 1, 'x'));
  EXPECT_EQ(info.promise, std::string(GL_LINE - 1, 'x'));
  EXPECT_EQ(info.source, std::string(GL_LINE - 1, 'x'));
}

TEST(Codecs, TablesThatMakeNoSense) {
  const std::pair<uint32_t, uint32_t> tables[] = {
      {3, sizeof(gl_codec_row)},
      {2, sizeof(gl_codec_row) + 1},
      {2, sizeof(gl_codec_row) - 1},
      {2, 0},
      {GL_MAX_CODECS + 1, sizeof(gl_codec_row)},
      {UINT32_MAX, sizeof(gl_codec_row)},
      {1, UINT32_MAX},
      {UINT32_MAX, UINT32_MAX},
  };
  for (const auto& [count, bytes] : tables) {
    FakeDaemon daemon({.strategies = {}, .control = [rows = count, row_bytes = bytes](gl_control& control) {
                         control.codecs = rows;
                         control.codec_row_bytes = row_bytes;
                       }});
    const gradlane_options options = options_for(daemon.path(), 200);
    gradlane_context* gl = nullptr;
    EXPECT_EQ(gradlane_open(&gl, &options), GRADLANE_VERSION) << count << " of " << bytes;
    EXPECT_SAYS(nullptr, "an invalid table of codecs");
  }
}

TEST(Codecs, LocalReduce) {
  FakeDaemon with({.flags = GL_WELCOME_LOCAL_REDUCE});
  FakeDaemon three({.flags = GL_WELCOME_LOCAL_REDUCE, .trainers = 3});
  FakeDaemon without({.trainers = 3});
  EXPECT_EQ(gradlane_local_reduce(open_context(with).get()), 1);
  EXPECT_EQ(gradlane_local_reduce(open_context(three).get()), 3);
  EXPECT_EQ(gradlane_local_reduce(open_context(without).get()), 0);
  EXPECT_EQ(gradlane_local_reduce(nullptr), 0);
}

}  // namespace
}  // namespace gradlane::test::codecs_test
