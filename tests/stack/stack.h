// stack.h - complete nodes with their daemons' housekeeping, a network, and trainers with the real library, in virtual
// time
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "base/time.h"
#include "client/gradlane.h"
#include "config/config.h"
#include "dataplane/daemon/housekeeping.h"
#include "dataplane/daemon/shutdown.h"
#include "dataplane/device/ring_links.h"
#include "dataplane/node/node.h"
#include "dataplane/status/job_watch.h"
#include "dataplane/status/node_figures.h"
#include "tests/stack/network.h"

namespace gradlane::test {

struct StackConfig {
  unsigned nodes = 4;
  // Number of extra hosts; their numbers follow those of the nodes. The test sends and receives their frames, or gives
  // one a configuration (next_config()) and starts a daemon there.
  unsigned spare = 0;
  const char* strategies = "ring";
  uint64_t seed = 1;
  // Changes the default configuration of each node: raw codec, one lane, tensors of up to 4 MiB.
  std::function<void(NodeConfig&)> change = nullptr;
};

// One thread runs everything: workers, control threads, the network, and the trainers' calls. Time passes only in
// step(): 1 us while something moves, otherwise until the next event is due. A library call that blocks calls step()
// until it can return, so all other parts run meanwhile. Trainers that wait for each other must use asynchronous
// requests: a blocking call of one trainer would keep the test from making the call of the next.
//
// Only one Stack exists at a time, because it is the clock of the client library.
class Stack {
 public:
  explicit Stack(const StackConfig& config = {});
  // Close all trainers before you destroy the Stack.
  ~Stack();
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;

  // ---- Time
  [[nodiscard]] Nanos now() const { return now_; }
  [[nodiscard]] uint64_t steps() const { return steps_; }  // number of steps since construction
  // Runs all parts that are due, then advances the time to the next event, at most to `limit`.
  void step(Nanos limit);
  void run_for(Nanos time);
  // Steps until is_so() is true. Returns false if that takes longer than `time`.
  [[nodiscard]] bool run_until(const std::function<bool()>& is_so, Nanos time = 60 * kSecond);
  // Does what run_until() does, but calls is_so() only every 20 ms. It is for slow conditions, such as logs and
  // statistics.
  [[nodiscard]] bool poll_until(const std::function<bool()>& is_so, Nanos time = 60 * kSecond);

  // Each step calls `background` first: it simulates other hosts of the network.
  void set_background(std::function<void()> background) { background_ = std::move(background); }

  // ---- Daemons, by host. Those of the nodes start at construction.
  [[nodiscard]] unsigned nodes() const { return given_.nodes; }
  [[nodiscard]] Node& node(unsigned node) { return *daemons_[node].nodes.front(); }
  [[nodiscard]] const NodeConfig& config(unsigned node) const { return daemons_[node].config; }
  // Returns the configuration for the next start(), which the caller may change. If a port's `device` is the number of
  // a spare host, the port uses that host's cable.
  [[nodiscard]] NodeConfig& next_config(unsigned node) { return daemons_[node].config; }
  // Starts a daemon that does not run.
  void start(unsigned node);
  // Ends the daemon as SIGKILL does: it sends nothing before it ends.
  void kill(unsigned node);
  // Ends the daemon as SIGTERM does: in order, and not at once.
  void end(unsigned node);
  // Stops the daemon as SIGSTOP does (true), or continues it as SIGCONT does (false).
  void stop(unsigned node, bool stopped);
  [[nodiscard]] bool is_running(unsigned node) const { return !daemons_[node].nodes.empty(); }
  // Returns how often the daemon has been started.
  [[nodiscard]] unsigned start_count(unsigned node) const { return daemons_[node].starts; }
  // Returns the error with which the daemon could not start, or ended without end() or kill(); "" if there was none.
  [[nodiscard]] const std::string& exit_error(unsigned node) const { return daemons_[node].why; }
  // Returns all log lines since the first start, each as "LEVEL TEXT".
  [[nodiscard]] const std::vector<std::string>& log(unsigned node) const { return daemons_[node].log; }
  // Returns the data that `gradlane stats` shows.
  [[nodiscard]] NodeFigures figures(unsigned node) { return node_figures(this->node(node), now_); }
  // Returns whether a log line matches the regular expression (std::regex).
  [[nodiscard]] bool logged(unsigned node, const std::string& pattern) const { return log_count(node, pattern) != 0; }
  [[nodiscard]] size_t log_count(unsigned node, const std::string& pattern) const;
  // Returns whether all running daemons accept trainers and their rings are complete.
  [[nodiscard]] bool is_complete() const;
  // Returns the sum of the counter `name` over all queues and lanes of the node.
  [[nodiscard]] uint64_t counter_sum(unsigned node, const std::string& name) const;

  [[nodiscard]] Network& network() { return network_; }
  [[nodiscard]] unsigned trainers() const { return daemons_[0].config.trainers; }
  [[nodiscard]] unsigned world() const { return nodes() * trainers(); }
  [[nodiscard]] unsigned node_of(unsigned rank) const { return rank / trainers(); }
  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }

  // Returns the existing Stack, or null.
  [[nodiscard]] static Stack* current();
  // Makes the next step run all workers and control threads. Call it after a trainer's call.
  void wake_all();

 private:
  class LogSink;
  struct Daemon {
    NodeConfig config;
    std::vector<std::unique_ptr<Node>> nodes;     // one element while the daemon runs, otherwise none
    std::vector<std::unique_ptr<JobWatch>> jobs;  // one element while the daemon runs, otherwise none
    std::unique_ptr<Housekeeping> housekeeping;
    std::unique_ptr<Shutdown> shutdown;
    std::vector<unsigned> hosts;  // numbers of the hosts whose cables its ports use
    bool open = false;
    bool stopped = false;
    unsigned starts = 0;
    Nanos settled_by = 0;
    Nanos round_at = 0;
    Nanos control_at = 0;
    std::string why;
    std::vector<std::string> log;
  };

  [[nodiscard]] NodeConfig config_of(unsigned node) const;
  [[nodiscard]] bool worker_round(Daemon& daemon);
  [[nodiscard]] bool has_frames(const Daemon& daemon) const;
  void control_round(unsigned node);
  void settle(unsigned node);
  [[nodiscard]] Nanos next_deadline(const Daemon& daemon) const;

  const StackConfig given_;
  const std::filesystem::path folder_;
  Nanos now_ = kSecond;
  uint64_t steps_ = 0;
  Network network_;
  RingLinks no_links_;
  std::vector<Daemon> daemons_;
  std::shared_ptr<LogSink> sink_;
  std::function<void()> background_;
};

}  // namespace gradlane::test
