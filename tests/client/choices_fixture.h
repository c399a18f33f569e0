// choices_fixture.h - a fixture for tests of `auto`, with which the library chooses codec and strategy, and the times
// that the fake daemon reports for each choice
#pragma once

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "tests/client/client_fixture.h"

namespace gradlane::test::choices_fixture {

inline constexpr size_t kCount = 65536;
inline constexpr uint8_t kRaw = 1;
inline constexpr uint8_t kFixed = 5;
inline constexpr uint32_t kRing = 257;
inline constexpr uint32_t kDirect = 258;

inline bool internal(const gl_submission& it) {
  return it.type == GRADLANE_FLOAT64 && (it.flags & (GL_FLAG_MIN | GL_FLAG_MAX)) != 0;
}

// The time of an operation in ns, by codec and strategy. `fixed` is the fastest in the first function, and slow in the
// second.
inline uint64_t fast_fixed(const gl_submission& it) {
  return internal(it) ? 10 : (it.codec == kFixed ? 1000 : 8000) + (it.strategy == kDirect ? 500 : 0);
}
inline uint64_t slow_fixed(const gl_submission& it) {
  return internal(it) ? 10 : (it.codec == kFixed ? 9000 : 1000) + (it.strategy == kDirect ? 500 : 0);
}

class Choices : public testing::Test {
 protected:
  void open(FakeDaemon::Settings settings, int keep_warnings = 0) {
    gl_.reset();
    daemon_ = std::make_unique<FakeDaemon>(std::move(settings));
    gradlane_options options = options_for(daemon_->path());
    options.keep_warnings = keep_warnings;
    gradlane_context* gl = nullptr;
    ASSERT_EQ(gradlane_open(&gl, &options), GRADLANE_OK) << gradlane_error(nullptr);
    gl_.reset(gl);
    data_ = allocate(gl_, 2 * kCount);
    how_ = GRADLANE_HOW_INIT;
    how_.codec = "auto:2^-8";
  }
  void SetUp() override { open({.world = 2, .codec = "raw", .ways = fake_candidates(), .worked = fast_fixed}); }

  void reduce(unsigned times = 1, size_t count = kCount, gradlane_type type = GRADLANE_FLOAT32) {
    for (unsigned i = 0; i < times; ++i) {
      ASSERT_EQ(gradlane_all_reduce(gl_.get(), data_, count, type, &how_, nullptr), GRADLANE_OK)
          << gradlane_error(gl_.get());
    }
  }
  // Returns the submissions of the test, without the library's internal ones.
  std::vector<gl_submission> own() {
    std::vector<gl_submission> seen = daemon_->seen(0);
    std::erase_if(seen, internal);
    return seen;
  }
  size_t internals() { return static_cast<size_t>(std::ranges::count_if(daemon_->seen(0), internal)); }

  std::unique_ptr<FakeDaemon> daemon_;
  Context gl_;
  float* data_ = nullptr;
  gradlane_how how_ = GRADLANE_HOW_INIT;
};

}  // namespace gradlane::test::choices_fixture
