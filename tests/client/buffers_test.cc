// buffers_test.cc - tests of shared memory: gradlane_alloc() and gradlane_free()
#include <algorithm>
#include <cstring>
#include <random>

#include "tests/client/client_fixture.h"

namespace gradlane::test::buffers_test {
namespace {

TEST(Buffers, AreAlignedZeroAndShared) {
  FakeDaemon daemon({});
  const Context gl = open_context(daemon);
  float* const data = allocate(gl, 3000);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(data) % 4096, 0U);
  EXPECT_TRUE(std::all_of(data, data + 3000, [](float x) { return x == 0; }));
  data[2999] = 2.5F;
  EXPECT_EQ(reinterpret_cast<const float*>(daemon.bytes(0))[2999], 2.5F);
}

TEST(Buffers, MoreThanThereAreSegments) {
  FakeDaemon daemon({});
  const Context gl = open_context(daemon);
  std::vector<float*> buffers;
  for (size_t i = 0; i < 600; ++i) {
    buffers.push_back(allocate(gl, 1000 + 100 * i));
    ASSERT_NE(buffers.back(), nullptr) << i;
    std::fill_n(buffers.back(), 1000 + 100 * i, static_cast<float>(i));
  }
  for (size_t i = 0; i < buffers.size(); ++i) {
    ASSERT_EQ(std::count(buffers[i], buffers[i] + 1000 + 100 * i, static_cast<float>(i)), 1000 + 100 * i) << i;
  }
  EXPECT_LT(daemon.segments(), size_t{GL_MAX_SEGMENTS});
  for (float* const buffer : buffers) ASSERT_EQ(gradlane_free(gl.get(), buffer), GRADLANE_OK);
  EXPECT_EQ(daemon.segments(), 0U);
}

// Every new buffer contains zeros and overlaps no other buffer, whatever was freed before.
TEST(Buffers, RandomOrder) {
  FakeDaemon daemon({});
  const Context gl = open_context(daemon);
  std::mt19937 random(1);
  struct Held {
    uint8_t* bytes;
    size_t size;
    uint8_t mark;
  };
  std::vector<Held> held;
  for (int step = 0; step < 2000; ++step) {
    if (held.size() < 40 && random() % 3 != 0) {
      const size_t size = 1 + random() % (random() % 10 == 0 ? 900000 : 20000);
      auto* const bytes = allocate<uint8_t>(gl, size);
      ASSERT_NE(bytes, nullptr);
      ASSERT_EQ(std::count(bytes, bytes + size, 0), static_cast<ptrdiff_t>(size)) << step;
      const auto mark = static_cast<uint8_t>(1 + step % 255);
      memset(bytes, mark, size);
      held.push_back({bytes, size, mark});
    } else if (!held.empty()) {
      std::swap(held[random() % held.size()], held.back());
      const Held it = held.back();
      ASSERT_EQ(std::count(it.bytes, it.bytes + it.size, it.mark), static_cast<ptrdiff_t>(it.size)) << step;
      ASSERT_EQ(gradlane_free(gl.get(), it.bytes), GRADLANE_OK) << gradlane_error(gl.get());
      held.pop_back();
    }
  }
}

TEST(Buffers, BadArguments) {
  FakeDaemon daemon({});
  const Context gl = open_context(daemon);
  void* buffer = &buffer;
  EXPECT_EQ(gradlane_alloc(gl.get(), 0, &buffer), GRADLANE_BAD_ARGUMENT);
  EXPECT_EQ(buffer, nullptr);
  EXPECT_EQ(gradlane_alloc(gl.get(), SIZE_MAX, &buffer), GRADLANE_BAD_ARGUMENT);
  EXPECT_EQ(gradlane_alloc(gl.get(), SIZE_MAX / 2 - 4096, &buffer), GRADLANE_NO_MEMORY);
  EXPECT_EQ(gradlane_alloc(gl.get(), 1, nullptr), GRADLANE_BAD_ARGUMENT);
  float* const data = allocate(gl, 10);
  EXPECT_EQ(gradlane_free(gl.get(), data + 1), GRADLANE_BAD_ARGUMENT);
  EXPECT_SAYS(gl.get(), "not the start of a buffer");
  EXPECT_EQ(gradlane_free(gl.get(), nullptr), GRADLANE_OK);
  EXPECT_EQ(gradlane_free(gl.get(), data), GRADLANE_OK);
  EXPECT_EQ(gradlane_free(gl.get(), data), GRADLANE_BAD_ARGUMENT);
}

TEST(Buffers, TheDaemonsLimit) {
  FakeDaemon daemon({.memory = 3 << 20});
  const Context gl = open_context(daemon);
  void* buffer = nullptr;
  EXPECT_EQ(gradlane_alloc(gl.get(), 4 << 20, &buffer), GRADLANE_NO_MEMORY);
  EXPECT_SAYS(gl.get(), "left of 3145728");
  // All of the memory can be allocated, although the library prefers segments that are larger than the request.
  ASSERT_NE(allocate<uint8_t>(gl, 5 << 19), nullptr);
  ASSERT_NE(allocate<uint8_t>(gl, 1 << 19), nullptr);
  EXPECT_EQ(gradlane_alloc(gl.get(), 1, &buffer), GRADLANE_NO_MEMORY);
}

TEST(Buffers, InUse) {
  FakeDaemon daemon({.on_submission = [](unsigned, const gl_submission&) { return false; }});
  const Context gl = open_context(daemon);
  float* const data = allocate(gl, 10);
  float* const residual = allocate(gl, 10);
  gradlane_how how = GRADLANE_HOW_INIT;
  how.residual = residual;
  gradlane_request request = 0;
  ASSERT_EQ(gradlane_all_reduce(gl.get(), data, 10, GRADLANE_FLOAT32, &how, &request), GRADLANE_OK);
  EXPECT_EQ(gradlane_free(gl.get(), data), GRADLANE_BAD_ARGUMENT);
  EXPECT_SAYS(gl.get(), "request " + std::to_string(request));
  EXPECT_EQ(gradlane_free(gl.get(), residual), GRADLANE_BAD_ARGUMENT);
  daemon.complete(0, 1);  // cookie of the first submission
  ASSERT_EQ(gradlane_wait(gl.get(), request, 10000), GRADLANE_OK);
  EXPECT_EQ(gradlane_free(gl.get(), data), GRADLANE_OK);
  EXPECT_EQ(gradlane_free(gl.get(), residual), GRADLANE_OK);
}

TEST(Buffers, GarbageAnswer) {
  FakeDaemon daemon({.garbage_answers = true});
  const Context gl = open_context(daemon);
  void* buffer = nullptr;
  EXPECT_EQ(gradlane_alloc(gl.get(), 100, &buffer), GRADLANE_DAEMON_GONE);
  EXPECT_SAYS(gl.get(), "invalid segment");
  EXPECT_EQ(gradlane_alloc(gl.get(), 100, &buffer), GRADLANE_DAEMON_GONE);
}

TEST(Buffers, AfterTheDaemon) {
  FakeDaemon daemon({});
  const Context gl = open_context(daemon);
  float* const data = allocate(gl, 10);
  float* const more = allocate(gl, 10000000);
  data[0] = 1;
  daemon.goodbye("shutting down");
  void* buffer = nullptr;
  EXPECT_EQ(gradlane_alloc(gl.get(), 1 << 22, &buffer), GRADLANE_DAEMON_GONE);
  EXPECT_SAYS(gl.get(), "shutting down");
  EXPECT_EQ(data[0], 1.0F);
  EXPECT_EQ(gradlane_free(gl.get(), more), GRADLANE_OK);
  EXPECT_EQ(gradlane_free(gl.get(), data), GRADLANE_OK);
}

}  // namespace
}  // namespace gradlane::test::buffers_test
