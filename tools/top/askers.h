// askers.h - asks daemons again and again, each in a thread of its own, so that none holds up the others or the screen
#pragma once

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include "tools/admin/client.h"
#include "tools/top/view.h"

namespace gradlane {

// One daemon. The thread writes, the main thread reads.
class Asker {
 public:
  using Clock = std::chrono::steady_clock;

  Asker(std::string path, std::chrono::milliseconds every);
  // Until it has answered, or did not.
  void wait_first();
  // What came since the last call, with the document of then as `before`. `now` is null where nothing has come yet.
  [[nodiscard]] TopLooks take();

 private:
  void ask(const std::stop_token& stop, std::chrono::milliseconds every);
  void note(nlohmann::json document);

  const std::string path_;
  std::mutex mutex_;
  std::condition_variable_any wake_;  // at the end, and when the first answer has come
  // Under the mutex.
  nlohmann::json now_;
  Clock::time_point at_;
  std::string gone_;
  bool asked_ = false;
  unsigned looks_ = 0;       // since the last take(), that came
  unsigned exchanging_ = 0;  //   and saw operations in flight
  // Main thread.
  TopLooks last_;
  nlohmann::json before_;
  Clock::time_point before_at_;
  std::jthread thread_;  // ends first
};

// All daemons of a ring that are on this machine.
class Askers {
 public:
  // first: an admin socket. Throws SetupError if nobody answers there, or who does is an accelerator. one: it alone.
  Askers(const std::string& first, bool one, std::chrono::milliseconds every);
  // Daemons of the first one's ring; looks for new ones, too. `events`: what came and went since the last call.
  [[nodiscard]] std::vector<TopLooks> take(std::vector<std::string>& events);

 private:
  void find_new();
  void note_life(const TopLooks& looks, std::vector<std::string>& events);

  const std::string first_;
  const bool one_;
  const std::chrono::milliseconds every_;
  std::map<std::string, std::unique_ptr<Asker>> askers_;  // by path
  struct Life {
    int pid = 0;
    bool gone = false;
  };
  std::map<unsigned, Life> lives_;  // by node
  bool started_ = false;            // take() has been called
};

}  // namespace gradlane
