// askers.h - periodic requests to daemons, each in a thread of its own, so that no daemon delays the others or the
// screen
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

// Asks one daemon periodically. Its thread writes the results, and the main thread reads them.
class Asker {
 public:
  using Clock = std::chrono::steady_clock;
  // Returns a document. Throws SetupError that says why there is none.
  using Ask = std::function<nlohmann::json(const std::stop_token&)>;

  // `path` is the daemon's socket, or its host and port, for TopLooks::path.
  Asker(std::string path, std::chrono::milliseconds every, Ask ask);
  // Requests the end of the thread. A request to the daemon that is under way may take some time to end.
  void stop() { thread_.request_stop(); }
  // Waits until a first request has been answered or has failed, or until `end`.
  void wait_first(Clock::time_point end);
  // Waits until the next take() has a new document, or the reason why there is none, or until `end`.
  void wait_news(Clock::time_point end);
  // Returns the latest document, with the one of the previous call as `before`. `now` is null if no document has come
  // yet.
  [[nodiscard]] TopLooks take();

 private:
  void ask_again_and_again(const std::stop_token& stop, std::chrono::milliseconds every);
  void note(nlohmann::json document);

  const std::string path_;
  const Ask ask_;
  std::mutex mutex_;
  std::condition_variable_any wake_;  // notified after each answer or failure
  // The mutex guards the next members.
  nlohmann::json now_;
  Clock::time_point at_;
  std::string gone_;
  bool asked_ = false;
  unsigned looks_ = 0;       // documents received since the latest take()
  unsigned exchanging_ = 0;  // number of these documents in which operations were in flight
  // The main thread alone uses the next members.
  TopLooks last_;
  nlohmann::json before_;
  Clock::time_point before_at_;
  std::jthread thread_;  // the last member, so that it ends first
};

// Asks all daemons of a ring. Daemons with an admin socket here are asked through it. Others are asked at their metrics
// port, at the address in the table of nodes.
class Askers {
 public:
  using Clock = Asker::Clock;
  struct Pace {
    std::chrono::milliseconds every;     // time between two requests to a local daemon
    std::chrono::milliseconds interval;  // time from one take() to the next
    std::chrono::milliseconds patience;  // longest wait for remote daemons at the beginning
  };
  struct Ring {
    std::vector<TopLooks> looks;
    std::vector<TopOther> others;
  };

  // `first` is an admin socket. With `one`, only the daemon there is asked. Throws SetupError if no daemon answers
  // there, or if an accelerator answers.
  Askers(const std::string& first, bool one, Pace pace);
  ~Askers();
  Askers(const Askers&) = delete;
  Askers& operator=(const Askers&) = delete;
  // Waits until each daemon that answers has sent a document since the latest take(), but at most for `most`.
  void wait_for_news(std::chrono::milliseconds most);
  // Returns the documents of the first daemon's ring, after a search for new daemons. Appends to `events` which daemons
  // started or stopped answering since the previous call.
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
