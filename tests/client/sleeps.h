// sleeps.h - a replacement of client/library/waits.c that runs a test's function while the library sleeps
#pragma once

#include <functional>

namespace gradlane {

// While a DuringSleeps exists, the library calls its function in place of each gl_sleep_ms(). Only one may exist at a
// time.
class DuringSleeps {
 public:
  explicit DuringSleeps(std::function<void()> work);
  ~DuringSleeps();
  DuringSleeps(const DuringSleeps&) = delete;
  DuringSleeps& operator=(const DuringSleeps&) = delete;
};

}  // namespace gradlane
