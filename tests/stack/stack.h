// stack.h - whole nodes with their daemons' housekeeping, a network, and trainers with the real library, in virtual
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
  // Hosts of the network behind those of the nodes: the test plays them, or gives one a configuration (change()) and
  // starts a daemon there.
  unsigned spare = 0;
  const char* strategies = "ring";
  uint64_t seed = 1;
  // Of each node's configuration, what is not as below: raw codec, one lane, 4 MiB at most.
  std::function<void(NodeConfig&)> change = nullptr;
};

// One thread does all: rounds of workers, the control threads' rounds, frames on their way, and what trainers call.
// Time passes in step() alone, by what there is to do: a microsecond while something moves, or up to the next thing
// that is due. A call of the library that waits steps until it need not wait any longer, so the others run meanwhile;
// several trainers that wait for each other by one call each use requests.
//
// There is one at a time: it is the library's clock and its waits.
class Stack {
 public:
  explicit Stack(const StackConfig& config = {});
  // Trainers are closed before.
  ~Stack();
  Stack(const Stack&) = delete;
  Stack& operator=(const Stack&) = delete;

  // ---- Time
  [[nodiscard]] Nanos now() const { return now_; }
  [[nodiscard]] uint64_t steps() const { return steps_; }  // so far
  // Until something has been done, or `limit` has come.
  void step(Nanos limit);
  void run_for(Nanos time);
  // False: not within this time.
  [[nodiscard]] bool run_until(const std::function<bool()>& is_so, Nanos time = 60 * kSecond);
  // The same of what takes long to look at, such as logs and figures: every 20 ms.
  [[nodiscard]] bool look_until(const std::function<bool()>& is_so, Nanos time = 60 * kSecond);

  // Called with every step, before anything else: what others on the network do meanwhile.
  void set_background(std::function<void()> background) { background_ = std::move(background); }

  // ---- Daemons, by host. Those of the nodes start at construction.
  [[nodiscard]] unsigned nodes() const { return given_.nodes; }
  [[nodiscard]] Node& node(unsigned node) { return *daemons_[node].nodes.front(); }
  [[nodiscard]] const NodeConfig& config(unsigned node) const { return daemons_[node].config; }
  // For its next life. A port whose device is the number of a spare host has that one's cable.
  [[nodiscard]] NodeConfig& change(unsigned node) { return daemons_[node].config; }
  // A new life.
  void start(unsigned node);
  // SIGKILL: nobody is told.
  void kill(unsigned node);
  // SIGTERM.
  void end(unsigned node);
  // SIGSTOP and SIGCONT.
  void stop(unsigned node, bool stopped);
  [[nodiscard]] bool runs(unsigned node) const { return !daemons_[node].nodes.empty(); }
  [[nodiscard]] unsigned lives(unsigned node) const { return daemons_[node].lives; }
  // Why it could not start, or has ended by itself; "": it has not.
  [[nodiscard]] const std::string& why(unsigned node) const { return daemons_[node].why; }
  // Lines of its log, all lives: "warning ...".
  [[nodiscard]] const std::vector<std::string>& log(unsigned node) const { return daemons_[node].log; }
  // What `gradlane stats` prints of.
  [[nodiscard]] NodeFigures figures(unsigned node) { return node_figures(this->node(node), now_); }
  // Whether a line of its log matches, as std::regex has it.
  [[nodiscard]] bool logged(unsigned node, const std::string& pattern) const { return log_count(node, pattern) != 0; }
  [[nodiscard]] size_t log_count(unsigned node, const std::string& pattern) const;
  // All ranks of the nodes that run have met.
  [[nodiscard]] bool whole() const;
  // What all queues and all ranks of a node have counted by that name.
  [[nodiscard]] uint64_t counted(unsigned node, const std::string& name) const;

  [[nodiscard]] Network& network() { return network_; }
  [[nodiscard]] unsigned trainers() const { return daemons_[0].config.trainers; }
  [[nodiscard]] unsigned world() const { return nodes() * trainers(); }
  [[nodiscard]] unsigned node_of(unsigned rank) const { return rank / trainers(); }
  [[nodiscard]] const std::filesystem::path& folder() const { return folder_; }

  // The one there is; null: there is none.
  [[nodiscard]] static Stack* current();
  // Somebody outside may have done something that daemons want to see at once.
  void touch();

 private:
  class LogSink;
  struct Daemon {
    NodeConfig config;
    std::vector<std::unique_ptr<Node>> nodes;     // one, while it runs
    std::vector<std::unique_ptr<JobWatch>> jobs;  // the same
    std::unique_ptr<Housekeeping> housekeeping;
    std::unique_ptr<Shutdown> shutdown;
    std::vector<unsigned> hosts;  // that its ports are
    bool open = false;
    bool stopped = false;
    unsigned lives = 0;
    Nanos settled_by = 0;
    Nanos round_at = 0;
    Nanos control_at = 0;
    std::string why;
    std::vector<std::string> log;
  };

  [[nodiscard]] NodeConfig config_of(unsigned node) const;
  [[nodiscard]] bool round(Daemon& daemon);
  [[nodiscard]] bool has_frames(const Daemon& daemon) const;
  void control(unsigned node);
  void settle(unsigned node);
  [[nodiscard]] Nanos look_at(const Daemon& daemon) const;

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
