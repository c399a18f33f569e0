// wait_fixture.h - a fixture of tests that wait for requests, with one lane or two, sleeping or polling
#pragma once

#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "tests/client/client_fixture.h"

namespace gradlane {

inline constexpr int kLong = 600'000;  // ms; a passing test never waits this long

inline constexpr int kNeverSleeps = 5'000'000;

struct Mode {
  uint32_t lanes;
  int spin_us;  // time (us) for which a wait polls before it sleeps: 0, or a time so long that it never sleeps
};

class Wait : public testing::TestWithParam<Mode> {
 protected:
  void open(FakeDaemon::Settings settings = {}) {
    gl_.reset();
    daemon_.reset();
    settings.lanes = GetParam().lanes;
    daemon_ = std::make_unique<FakeDaemon>(std::move(settings));
    gl_ = open_context(*daemon_, GetParam().spin_us);
    data_ = allocate(gl_, 6400);
  }
  // Opens a daemon that completes nothing until the test does.
  void open_manual(uint32_t first_count = 0) {
    open({.first_count = first_count, .on_submission = [](unsigned, const gl_submission&) { return false; }});
  }
  gradlane_request start(size_t place = 0, const gradlane_how* how = nullptr) {
    gradlane_request request = 0;
    EXPECT_EQ(gradlane_all_reduce(gl_.get(), data_ + place * 100, 100, GRADLANE_FLOAT32, how, &request), GRADLANE_OK)
        << gradlane_error(gl_.get());
    EXPECT_NE(request, 0U);
    return request;
  }
  // Returns the daemon's cookie of a request. Cookies count parts from 1 on, and requests here have only one part.
  static uint64_t cookie_of(gradlane_request request) { return request >> 24; }
  // Completes a request on all lanes. The last lane gets the given code and text.
  void complete(gradlane_request request, int32_t code = GRADLANE_OK, const std::string& text = "") {
    const uint32_t lanes = GetParam().lanes;
    for (unsigned i = 0; i + 1 < lanes; ++i) daemon_->complete(i, cookie_of(request));
    daemon_->complete(lanes - 1, cookie_of(request), code, text);
  }
  // Waits until the library says that it sleeps or is about to. Returns at once if the library never sleeps.
  void await_waiting() const {
    while (GetParam().spin_us < kNeverSleeps && daemon_->waiting() == 0) std::this_thread::yield();
  }
  gradlane_code wait(gradlane_request request, int timeout_ms = kLong) {
    return gradlane_wait(gl_.get(), request, timeout_ms);
  }

  std::unique_ptr<FakeDaemon> daemon_;
  Context gl_;
  float* data_ = nullptr;
};

inline std::string mode_name(const testing::TestParamInfo<Mode>& mode) {
  const std::string spin = mode.param.spin_us < 0 ? "default" : mode.param.spin_us == 0 ? "sleep" : "spin";
  return std::to_string(mode.param.lanes) + "_" + spin;
}
inline constexpr Mode kModes[] = {{1, 0}, {2, 0}, {1, -1}, {2, -1}, {2, kNeverSleeps}};

}  // namespace gradlane
