// loss_test.cc - tests of the loss by lossy codecs: figures, and one warning per class of tensors
#include <cstring>

#include "tests/client/wait_fixture.h"

namespace gradlane::test::loss_test {
namespace {

constexpr size_t kSizes = 20;  // more classes of tensors than the library warns about

class LossTest : public Wait {
 protected:
  void SetUp() override {
    open_manual();
    data_ = allocate(gl_, 1024 * kSizes);
  }
  void keep_warnings() {
    gl_.reset();
    gradlane_options options = options_for(daemon_->path(), -1, GetParam().spin_us);
    options.keep_warnings = 1;
    gradlane_context* gl = nullptr;
    ASSERT_TRUE(daemon_->await_gone());
    ASSERT_EQ(gradlane_open(&gl, &options), GRADLANE_OK) << gradlane_error(nullptr);
    gl_ = Context(gl);
    data_ = allocate(gl_, 1024 * kSizes);
  }
  // Runs a sum of 1024 * size floats. Each lane of the daemon reports this loss.
  void sum(const gl_loss& loss, size_t size = 1, int32_t code = GRADLANE_OK) {
    gradlane_how how = GRADLANE_HOW_INIT;
    how.codec = "fixed:10";
    gradlane_request request = 0;
    ASSERT_EQ(gradlane_all_reduce(gl_.get(), data_, 1024 * size, GRADLANE_FLOAT32, &how, &request), GRADLANE_OK)
        << gradlane_error(gl_.get());
    for (unsigned lane = 0; lane < GetParam().lanes; ++lane) {
      gl_completion completion{};
      completion.cookie = cookie_of(request);
      completion.code = code;
      if (lane + 1 == GetParam().lanes) completion.loss = loss;
      daemon_->put_completion(lane, completion);
    }
    ASSERT_EQ(wait(request), code);
  }
  std::string warning() {
    const char* const text = gradlane_warning(gl_.get());
    return text != nullptr ? text : "";
  }
};

INSTANTIATE_TEST_SUITE_P(Modes, LossTest, testing::ValuesIn(kModes), mode_name);

TEST_P(LossTest, OncePerClass) {
  keep_warnings();
  sum({1000, 499, 100, 0.99});  // less than a tenth of the norm, less than half of the values
  sum({0, 0, 0, 0});
  EXPECT_EQ(warning(), "");
  sum({1000, 20, 100, 25});
  const std::string text = warning();
  EXPECT_TRUE(
      text.starts_with("all_reduce of 1024 elements by codec fixed:10 lost 50 % of the norm of rank 0's values, "
                       "and 2 % of its nonzero values became zero"))
      << text;
  for (const char* const what : {"codec raw", "error feedback", "fixed:adaptive"})
    EXPECT_NE(text.find(what), text.npos);
  EXPECT_EQ(warning(), "");
  sum({1000, 1000, 100, 100});
  EXPECT_EQ(warning(), "");
  sum({1000, 500, 100, 0.1}, 2);
  EXPECT_NE(warning().find("2048 elements by codec fixed:10 lost 3 % of the norm"), std::string::npos);
}

TEST_P(LossTest, ManyClasses) {
  keep_warnings();
  for (size_t size = 1; size <= kSizes; ++size) sum({1, 1, 1, 1}, size);
  size_t warnings = 0;
  while (!warning().empty()) ++warnings;
  EXPECT_EQ(warnings, 16U);
}

TEST_P(LossTest, OnStandardErrorUnlessKept) {
  testing::internal::CaptureStderr();
  sum({100, 100, 1, 1});
  sum({100, 100, 1, 1});
  const std::string text = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(text.starts_with("gradlane: warning: all_reduce of 1024 elements")) << text;
  EXPECT_TRUE(text.ends_with("or codec raw\n") && text.find('\n') + 1 == text.size()) << text;
  EXPECT_EQ(warning(), "");
}

TEST_P(LossTest, FiguresAreSums) {
  keep_warnings();
  sum({100, 3, 16, 1});
  sum({50, 2, 4, 0.5});
  sum({7, 7, 7, 7}, 1, GRADLANE_FAILED);  // a failed operation has lost nothing
  gradlane_figures figures{};
  figures.struct_size = sizeof(figures);
  ASSERT_EQ(gradlane_get_figures(gl_.get(), &figures), GRADLANE_OK);
  EXPECT_EQ(figures.lossy_values, 150U);
  EXPECT_EQ(figures.lossy_zeroed, 5U);
  EXPECT_EQ(figures.lossy_squares, 20);
  EXPECT_EQ(figures.lossy_lost_squares, 1.5);
}

}  // namespace
}  // namespace gradlane::test::loss_test
