// sleeps.h - what happens while the library sleeps: in place of client/library/waits.c
#pragma once

#include <functional>

namespace gradlane {

// Called in place of each gl_sleep_ms() while it exists; one at a time.
class DuringSleeps {
 public:
  explicit DuringSleeps(std::function<void()> work);
  ~DuringSleeps();
  DuringSleeps(const DuringSleeps&) = delete;
  DuringSleeps& operator=(const DuringSleeps&) = delete;
};

}  // namespace gradlane
