// job.h - one run: daemons start, trainers run, and everything is stopped, in this order (main thread only)
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tools/run/child.h"
#include "tools/run/cleanup_guard.h"
#include "tools/run/files.h"
#include "tools/run/net.h"
#include "tools/run/output.h"
#include "tools/run/ready.h"
#include "tools/run/settings.h"

namespace gradlane {

// Runs a loop around poll(). It handles output, signals and ends of processes, and advance() takes the job from phase
// to phase. Every failure leads to stop(), which has an effect only once. So the first cause decides the exit status.
class RunJob {
 public:
  RunJob(const RunSettings& plan, const RunFiles& files);
  // Kills all processes that are left if an exception ends the run early.
  ~RunJob();
  RunJob(const RunJob&) = delete;
  RunJob& operator=(const RunJob&) = delete;

  // Returns the exit status.
  [[nodiscard]] int run();

 private:
  using Clock = std::chrono::steady_clock;

  enum class Phase : uint8_t {
    kStarting,      // daemons start, until all are ready
    kRunning,       // trainers run
    kDraining,      // a daemon has died; trainers get time to end by themselves, with an error that says more
    kStopTrainers,  // trainers have been asked to end
    kKillTrainers,
    kStopDaemons,
    kKillDaemons,
    kOver,
  };

  struct Process {
    std::string name;
    bool trainer = false;
    pid_t pid = -1;
    bool ended = false;
    std::vector<LineSource> output;
  };

  struct Ending {
    Process* process;
    int status;
  };

  void start_daemons();
  void start_trainers();
  void start(const ChildSpec& spec, const std::string& name, const std::string& prefix, bool trainer);
  void print_how_to_attach();
  void report_savings();
  // trainers' socket of the node's daemon, or admin socket of its accelerator
  [[nodiscard]] std::string socket_path(unsigned node) const;
  [[nodiscard]] std::vector<std::string> variables(unsigned rank) const;
  [[nodiscard]] bool all_sockets_ready();

  void wait_for_events();
  void on_signal(int signal);
  void collect_endings();
  void on_daemon_ended(const Process& daemon, int status);
  void on_trainer_ended(const Process& trainer, int status);
  void advance();

  // Ends the run with this exit status. Sends `signal` to the trainers, and SIGTERM to the daemons when the trainers
  // have ended.
  void stop(int code, int signal);
  void enter(Phase phase, Clock::duration at_most = Clock::duration::max());
  void signal_all(bool trainers, int signal);
  // Sends `signal` to each orphan to which it was not sent before. Orphans are processes that trainers have started and
  // left running.
  void signal_orphans(int signal);
  void kill_all(bool trainers);
  [[nodiscard]] bool alive(bool trainers);
  [[nodiscard]] std::vector<pid_t> orphans() const;
  [[nodiscard]] bool late() const { return Clock::now() >= deadline_; }
  void write_rest();

  void say(const std::string& text) { err().add("gradlane: ", text); }
  [[nodiscard]] LineSink& out() noexcept { return out_; }
  [[nodiscard]] LineSink& err() noexcept { return err_ ? *err_ : out_; }

  const RunSettings& plan_;
  const RunFiles& files_;
  const unsigned port_;
  SignalQueue signals_;
  CleanupGuard cleanup_guard_;
  RunNet net_;
  LineSink out_;
  std::optional<LineSink> err_;  // none if both are the same file, because two sinks would cut each other's lines
  std::vector<Process> processes_;
  std::set<pid_t> signalled_;  // orphans that have got a signal
  Phase phase_ = Phase::kStarting;
  Clock::time_point deadline_;
  Clock::time_point running_since_;
  unsigned ready_ = 0;          // number of nodes that are ready
  AdminProbe probe_;            // used for the next node, if it is an accelerator
  unsigned interruptions_ = 0;  // number of SIGINT, SIGTERM and SIGHUP
  int code_ = 0;
};

}  // namespace gradlane
