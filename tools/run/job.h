// job.h - one run: daemons come up, trainers run, all of it is brought down again, in this order
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "tools/run/child.h"
#include "tools/run/files.h"
#include "tools/run/net.h"
#include "tools/run/output.h"
#include "tools/run/plan.h"
#include "tools/run/ready.h"
#include "tools/run/warden.h"

namespace gradlane {

// A loop around poll(): output and signals come in, processes end, and advance() takes the job from phase to phase.
// Whatever goes wrong leads to stop(), which happens once; so the first cause decides the exit status.
class RunJob {
 public:
  RunJob(const RunPlan& plan, const RunFiles& files);
  // Kills what is left, if an exception cuts the run short.
  ~RunJob();
  RunJob(const RunJob&) = delete;
  RunJob& operator=(const RunJob&) = delete;

  // The exit status.
  [[nodiscard]] int run();

 private:
  using Clock = std::chrono::steady_clock;

  enum class Phase : uint8_t {
    kStarting,      // daemons, until all are ready
    kRunning,       // trainers
    kForsaken,      // a daemon has died; trainers may end by themselves, with an error that says more
    kStopTrainers,  // asked to
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
  void say_worth();
  [[nodiscard]] std::string socket_path(unsigned node) const;  // of its daemon
  [[nodiscard]] std::vector<std::string> variables(unsigned rank) const;
  [[nodiscard]] bool all_sockets_ready();

  void wait_for_events();
  void on_signal(int signal);
  void collect_endings();
  void on_daemon_ended(const Process& daemon, int status);
  void on_trainer_ended(const Process& trainer, int status);
  void advance();

  // Ends the run: trainers get `signal`, then the daemons SIGTERM.
  void stop(int code, int signal);
  void enter(Phase phase, Clock::duration at_most = Clock::duration::max());
  void signal_all(bool trainers, int signal);
  // What trainers have started and not ended. Those that have not got `signal` yet get it now.
  void signal_orphans(int signal);
  void kill_all(bool trainers);
  [[nodiscard]] bool alive(bool trainers);
  [[nodiscard]] std::vector<pid_t> orphans() const;
  [[nodiscard]] bool late() const { return Clock::now() >= deadline_; }
  void write_rest();

  void say(const std::string& text) { err().add("gradlane: ", text); }
  [[nodiscard]] LineSink& out() noexcept { return out_; }
  [[nodiscard]] LineSink& err() noexcept { return err_ ? *err_ : out_; }

  const RunPlan& plan_;
  const RunFiles& files_;
  const unsigned port_;
  SignalQueue signals_;
  RunWarden warden_;
  RunNet net_;
  LineSink out_;
  std::optional<LineSink> err_;  // none where both are the same file: lines must not cut one another
  std::vector<Process> processes_;
  std::set<pid_t> signalled_;  // orphans
  Phase phase_ = Phase::kStarting;
  Clock::time_point deadline_;
  Clock::time_point running_since_;
  unsigned ready_ = 0;          // nodes
  AdminProbe probe_;            // of the next one, if it is an accelerator
  unsigned interruptions_ = 0;  // SIGINT and the like
  int code_ = 0;
};

}  // namespace gradlane
