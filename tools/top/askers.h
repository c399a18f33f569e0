// askers.h - asks daemons again and again, each in a thread of its own, so that none holds up the others or the screen
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tools/admin/client.h"
#include "tools/top/remote.h"
#include "tools/top/view.h"

namespace gradlane {

// One daemon. The thread writes, the main thread reads.
class Asker {
 public:
  using Clock = std::chrono::steady_clock;
  // A document, or SetupError that says why there is none.
  using Ask = std::function<nlohmann::json(const std::stop_token&)>;

  // `path`: where it asks.
  Asker(std::string path, std::chrono::milliseconds every, Ask ask);
  // It asks nobody any more: what it waits for now may take some time to end.
  void stop() { thread_.request_stop(); }
  // Until it has answered, or did not; or until `end`.
  void wait_first(Clock::time_point end);
  // Until the next take() will have something new, or why there is nothing; or until `end`.
  void wait_news(Clock::time_point end);
  // What came since the last call, with the document of then as `before`. `now` is null where nothing has come yet.
  [[nodiscard]] TopLooks take();

 private:
  void ask_again_and_again(const std::stop_token& stop, std::chrono::milliseconds every);
  void note(nlohmann::json document);

  const std::string path_;
  const Ask ask_;
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

// All daemons of a ring: those with an admin socket here by it, and others by their metrics' port, as the table of
// nodes has their addresses.
class Askers {
 public:
  using Clock = Asker::Clock;
  struct Pace {
    std::chrono::milliseconds every;     // from one look at a daemon here to the next
    std::chrono::milliseconds interval;  // from one take() to the next
    std::chrono::milliseconds patience;  // how long those elsewhere are waited for at the beginning
  };
  struct Ring {
    std::vector<TopLooks> looks;
    std::vector<TopOther> others;
  };

  // first: an admin socket. Throws SetupError if nobody answers there, or who does is an accelerator. one: it alone.
  Askers(const std::string& first, bool one, Pace pace);
  ~Askers();
  Askers(const Askers&) = delete;
  Askers& operator=(const Askers&) = delete;
  // Until each that answers has something that the last take() did not have, or for so long.
  void wait_for_news(std::chrono::milliseconds most);
  // Daemons of the first one's ring; looks for new ones, too. `events`: what came and went since the last call.
  [[nodiscard]] Ring take(std::vector<std::string>& events);

 private:
  void find_new();
  [[nodiscard]] std::vector<TopLooks> take_local();
  void add_remote(Ring& ring);
  [[nodiscard]] Asker& remote(const RemoteNode& node, size_t nodes);
  void note_life(const TopLooks& looks, std::vector<std::string>& events);

  const std::string first_;
  const bool one_;
  const Pace pace_;
  std::map<std::string, std::unique_ptr<Asker>> askers_;                        // by path
  std::map<std::pair<std::string, uint16_t>, std::unique_ptr<Asker>> remotes_;  // by host and port
  struct Life {
    unsigned pid = 0;
    double up = 0;
    bool gone = false;
  };
  std::map<unsigned, Life> lives_;  // by node
  bool started_ = false;            // take() has been called
};

}  // namespace gradlane
