// client_fixture.h - a client library and a fake daemon in one process, for tests
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "client/gradlane.h"
#include "tests/client/fake_daemon.h"

namespace gradlane {

struct ContextCloser {
  void operator()(gradlane_context* gl) const { gradlane_close(gl); }
};
using Context = std::unique_ptr<gradlane_context, ContextCloser>;

inline gradlane_options options_for(const std::string& path, int timeout_ms = -1, int spin_us = -1) {
  gradlane_options options = GRADLANE_OPTIONS_INIT;
  options.socket = path.c_str();
  options.timeout_ms = timeout_ms;
  options.spin_us = spin_us;
  return options;
}

inline Context open_context(const FakeDaemon& daemon, int spin_us = -1) {
  const gradlane_options options = options_for(daemon.path(), -1, spin_us);
  gradlane_context* gl = nullptr;
  EXPECT_EQ(gradlane_open(&gl, &options), GRADLANE_OK) << gradlane_error(nullptr);
  return Context(gl);
}

template <typename T = float>
T* allocate(const Context& gl, size_t count) {
  void* buffer = nullptr;
  EXPECT_EQ(gradlane_alloc(gl.get(), count * sizeof(T), &buffer), GRADLANE_OK) << gradlane_error(gl.get());
  return static_cast<T*>(buffer);
}

inline bool contains(const char* text, const std::string& part) {
  return std::string(text).find(part) != std::string::npos;
}
#define EXPECT_SAYS(gl, part) EXPECT_TRUE(contains(gradlane_error(gl), part)) << gradlane_error(gl)

}  // namespace gradlane
