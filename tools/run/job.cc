// job.cc - one run of `gradlane run` (main thread only)
#include "tools/run/job.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "tools/run/links.h"
#include "tools/run/namespaces.h"
#include "tools/run/ports.h"
#include "tools/run/savings.h"

namespace gradlane {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kStartTime{30};
constexpr size_t kLinksPerSecond = 4;  // more of kStartTime for jobs that make many links on a machine with few cores
constexpr seconds kLastWords{2};       // time for trainers to end after a daemon has died
constexpr seconds kLongEnough{1};      // shortest job whose gain by compression is reported
constexpr seconds kGrace{5};           // time between SIGTERM and SIGKILL
constexpr milliseconds kTick{20};
constexpr milliseconds kLongTick{500};
constexpr int kBrokenPipe = 128 + SIGPIPE;

// Returns the time limit for all daemons to be ready.
seconds start_time(const RunSettings& plan) {
  const bool one_port = plan.has_namespaces() || plan.link == RunSettings::Link::kUdp;
  size_t ends = 0;
  for (unsigned node = 0; !one_port && node < plan.nodes; ++node) ends += links_of(plan, node).size();
  return kStartTime + seconds(ends / 2 / kLinksPerSecond);
}

}  // namespace

RunJob::RunJob(const RunSettings& plan, const RunFiles& files)
    : plan_(plan),
      files_(files),
      port_(free_port()),
      signals_({SIGINT, SIGTERM, SIGHUP, SIGCHLD}),
      cleanup_guard_(files.folder(), run_namespaces(plan)),
      net_(plan, cleanup_guard_),
      out_(STDOUT_FILENO) {
  if (!same_file(STDOUT_FILENO, STDERR_FILENO)) err_.emplace(STDERR_FILENO);
  adopt_orphans();
}

RunJob::~RunJob() {
  signal_all(true, SIGKILL);
  signal_all(false, SIGKILL);
  for (const Process& process : processes_) {
    if (!process.ended) waitpid(process.pid, nullptr, 0);
  }
}

int RunJob::run() {
  start_daemons();
  enter(Phase::kStarting, start_time(plan_));
  while (phase_ != Phase::kOver) {
    wait_for_events();
    collect_endings();
    advance();
  }
  write_rest();
  return code_;
}

// ---- Starting

void RunJob::start(const ChildSpec& spec, const std::string& name, const std::string& prefix, bool trainer) {
  const Child child = start_child(spec, signals_.mask_before());
  Process process;
  process.name = name;
  process.trainer = trainer;
  process.pid = child.pid;
  cleanup_guard_.started(child.pid);
  process.output.emplace_back(child.out, prefix, trainer ? out() : err());
  if (child.err >= 0) process.output.emplace_back(child.err, prefix, err());
  processes_.push_back(std::move(process));
}

void RunJob::start_daemons() {
  if (!plan_.has_daemons()) return;
  ChildSpec spec;
  spec.environment = environment_with({});
  spec.one_pipe = true;
  spec.command = {plan_.daemon};
  for (unsigned node = 0; node < plan_.nodes; ++node) {
    spec.command.insert(spec.command.end(), {"--config", files_.config(node)});
    if (plan_.link == RunSettings::Link::kRing) continue;
    const InNetworkNamespace in(net_.space(node));
    start(spec, fmt::format("the daemon of node {}", node), fmt::format("[node {}] ", node), false);
    spec.command = {plan_.daemon};
  }
  if (plan_.link == RunSettings::Link::kRing) start(spec, "the daemon of all nodes", "[nodes] ", false);
}

// Reports the gain by compression. Prints nothing if lines have no prefix, because they must be the trainers' own, or
// if the job was too short. For accelerators, users call `gradlane stats`.
void RunJob::report_savings() {
  if (Clock::now() - running_since_ < kLongEnough || !plan_.prefix || !plan_.has_daemons() || plan_.has_accelerators())
    return;
  std::vector<std::string> admins;
  for (unsigned node = 0; node < plan_.nodes; ++node) admins.push_back(files_.admin(node));
  for (const std::string& line : job_savings(admins)) say(line);
}

std::string RunJob::socket_path(unsigned node) const {
  return plan_.has_accelerators() ? files_.admin(node) : files_.socket(node);
}

bool RunJob::all_sockets_ready() {
  if (!plan_.has_daemons()) return true;
  for (; ready_ < plan_.nodes; ++ready_) {
    const std::string path = socket_path(ready_);
    if (!(plan_.has_accelerators() ? probe_.answers(path) : takes_trainers(path))) return false;
  }
  return true;
}

std::vector<std::string> RunJob::variables(unsigned rank) const {
  if (plan_.link == RunSettings::Link::kAccelerator) {
    return host_variables(plan_, rank, port_, plan_.accelerators ? files_.admin(rank) : "");
  }
  const std::string socket = files_.socket(plan_.node_of(rank));
  return plan_.inside ? inside_variables(plan_, rank, port_, socket, net_.spaces())
                      : rank_variables(plan_, rank, port_, socket);
}

void RunJob::start_trainers() {
  const bool has_threads = std::getenv("OMP_NUM_THREADS") != nullptr;
  for (unsigned rank = 0; rank < plan_.ranks(); ++rank) {
    std::vector<std::string> its = variables(rank);
    // All trainers share the CPUs of this machine.
    if (!has_threads) its.emplace_back("OMP_NUM_THREADS=1");
    const InNetworkNamespace in(plan_.runs_inside() ? net_.space(plan_.node_of(rank)) : "");
    start({plan_.command, environment_with(its)}, fmt::format("rank {}", rank),
          plan_.prefix ? fmt::format("[{}] ", rank) : "", true);
  }
}

void RunJob::print_how_to_attach() {
  const bool inside = plan_.runs_inside();
  const char* const what = !inside              ? "Set this in each trainer's shell"
                           : plan_.trainers > 1 ? "To start a shell for each trainer"
                                                : "To start a shell in each";
  out().add("", fmt::format("{} node{} up; Ctrl-C ends {}. {}:", plan_.nodes, plan_.nodes == 1 ? " is" : "s are",
                            plan_.nodes == 1 ? "it" : "them", what));
  for (unsigned rank = 0; rank < plan_.ranks(); ++rank) {
    const auto its = variables(rank);
    out().add("", inside
                      ? fmt::format("ip netns exec {} env {} sh", net_.space(plan_.node_of(rank)), fmt::join(its, " "))
                      : fmt::format("export {}", fmt::join(its, " ")));
  }
}

// ---- Events

void RunJob::wait_for_events() {
  std::vector<pollfd> events = {{signals_.fd(), POLLIN, 0}};
  for (LineSink* sink : {&out(), &err()}) {
    if (!sink->empty()) events.push_back({sink->fd(), POLLOUT, 0});
  }
  const size_t first = events.size();
  std::vector<LineSource*> sources;
  for (Process& process : processes_) {
    for (LineSource& source : process.output) {
      if (source.fd() < 0 || source.waits()) continue;
      sources.push_back(&source);
      events.push_back({source.fd(), POLLIN, 0});
    }
  }
  const milliseconds wait = phase_ == Phase::kRunning ? kLongTick : kTick;
  poll(events.data(), events.size(), static_cast<int>(wait.count()));
  for (size_t i = 0; i < sources.size(); ++i) {
    if (events[first + i].revents != 0) sources[i]->read_some();
  }
  out().write_some();
  err().write_some();
  if (out().broken() && phase_ != Phase::kOver) stop(kBrokenPipe, SIGTERM);
  for (int signal = signals_.next(); signal != 0; signal = signals_.next()) {
    if (signal != SIGCHLD) on_signal(signal);
  }
}

void RunJob::on_signal(int signal) {
  ++interruptions_;
  if (phase_ < Phase::kStopTrainers) {
    say(fmt::format("SIG{}: stopping", sigabbrev_np(signal)));
    stop(128 + signal, signal);
  } else if (interruptions_ > 1) {
    say(fmt::format("SIG{} again: killing all processes", sigabbrev_np(signal)));
    deadline_ = Clock::now();
  }
}

void RunJob::collect_endings() {
  std::vector<Ending> endings;
  for (siginfo_t info = {}; waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) == 0 && info.si_pid != 0; info = {}) {
    const auto known = std::ranges::find(processes_, info.si_pid, &Process::pid);
    // This signal ends the processes that the ended process leaves in its group. The group's number is not used again
    // before waitpid() has removed the zombie.
    if (known != processes_.end()) {
      kill(-info.si_pid, SIGTERM);
      cleanup_guard_.ended(info.si_pid);
    }
    int status = 0;
    waitpid(info.si_pid, &status, 0);
    signalled_.erase(info.si_pid);
    if (known == processes_.end() || known->ended) continue;
    known->ended = true;
    for (LineSource& source : known->output) source.read_rest();
    endings.push_back({&*known, status});
  }
  // If a daemon and a trainer ended since the previous check, the daemon's end made the trainer fail. So daemons are
  // handled first.
  for (const auto& [process, status] : endings) {
    if (!process->trainer) on_daemon_ended(*process, status);
  }
  for (const auto& [process, status] : endings) {
    if (process->trainer) on_trainer_ended(*process, status);
  }
}

void RunJob::on_daemon_ended(const Process& daemon, int status) {
  const std::string text = fmt::format("{} {}", daemon.name, ending_text(status));
  if (phase_ == Phase::kStarting) {
    const std::string& last = daemon.output.front().last_line();
    say(fmt::format("{} before it was ready{}{}", text, last.empty() ? "" : "; its last line: ", last));
    stop(1, SIGTERM);
  } else if (phase_ == Phase::kRunning) {
    code_ = 1;
    say(fmt::format("{} while the job was running", text));
    enter(Phase::kDraining, kLastWords);
  } else if (status != 0) {
    say(text);
    if (code_ == 0) code_ = 1;
  }
}

void RunJob::on_trainer_ended(const Process& trainer, int status) {
  if (phase_ >= Phase::kStopTrainers || status == 0) return;
  say(fmt::format("{} {}{}", trainer.name, ending_text(status), phase_ == Phase::kRunning ? "; stopping" : ""));
  if (phase_ == Phase::kRunning) stop(exit_code_of(status), SIGTERM);
}

// ---- From phase to phase

void RunJob::enter(Phase phase, Clock::duration at_most) {
  phase_ = phase;
  const Clock::time_point now = Clock::now();
  deadline_ = at_most < Clock::time_point::max() - now ? now + at_most : Clock::time_point::max();
}

void RunJob::stop(int code, int signal) {
  if (phase_ >= Phase::kStopTrainers) return;
  code_ = code;
  signal_all(true, signal);
  enter(Phase::kStopTrainers, kGrace);
}

void RunJob::advance() {
  switch (phase_) {
    case Phase::kStarting:
      if (all_sockets_ready()) {
        enter(Phase::kRunning);
        running_since_ = Clock::now();
        plan_.command.empty() ? print_how_to_attach() : start_trainers();
      } else if (late()) {
        say(fmt::format("node {} does not answer on {} after {} s", ready_, socket_path(ready_),
                        start_time(plan_).count()));
        stop(1, SIGTERM);
      }
      break;
    case Phase::kRunning:
      if (!plan_.command.empty() && !alive(true)) {
        report_savings();
        stop(0, SIGTERM);
      }
      break;
    case Phase::kDraining:
      if (plan_.command.empty() || !alive(true) || late()) stop(code_, SIGTERM);
      break;
    case Phase::kStopTrainers:
      signal_orphans(SIGTERM);
      [[fallthrough]];
    case Phase::kKillTrainers:
      if (!alive(true) && orphans().empty()) {
        signal_all(false, SIGTERM);
        enter(Phase::kStopDaemons, kGrace);
      } else if (late()) {
        kill_all(true);
      }
      break;
    case Phase::kStopDaemons:
    case Phase::kKillDaemons:
      if (!alive(false)) {
        enter(Phase::kOver);
      } else if (late()) {
        kill_all(false);
      }
      break;
    case Phase::kOver:
      break;
  }
}

// ---- Ending

void RunJob::signal_all(bool trainers, int signal) {
  for (const Process& process : processes_) {
    if (process.trainer == trainers && !process.ended) kill(-process.pid, signal);
  }
}

std::vector<pid_t> RunJob::orphans() const {
  std::vector<pid_t> children = all_children();
  std::erase_if(children, [this](pid_t pid) {
    if (pid == cleanup_guard_.pid()) return true;
    const auto known = std::ranges::find(processes_, pid, &Process::pid);
    return known != processes_.end() && !known->ended;
  });
  return children;
}

void RunJob::signal_orphans(int signal) {
  for (const pid_t pid : orphans()) {
    if (signalled_.insert(pid).second) kill(pid, signal);
  }
}

bool RunJob::alive(bool trainers) {
  return std::ranges::any_of(processes_, [trainers](const Process& p) { return p.trainer == trainers && !p.ended; });
}

void RunJob::kill_all(bool trainers) {
  const Phase phase = trainers ? Phase::kKillTrainers : Phase::kKillDaemons;
  if (phase_ != phase) {
    for (const Process& process : processes_) {
      if (process.trainer == trainers && !process.ended)
        say(fmt::format("{} does not end: sending SIGKILL", process.name));
    }
  }
  signal_all(trainers, SIGKILL);
  if (trainers) {
    for (const pid_t pid : orphans()) kill(pid, SIGKILL);
  }
  // The next tick calls kill_all() again, because killing processes makes new orphans.
  enter(phase, kTick);
}

void RunJob::write_rest() {
  for (Process& process : processes_) {
    for (LineSource& source : process.output) source.read_rest();
  }
  // A reader may be slow. A signal ends the wait, too.
  const unsigned before = interruptions_;
  while (interruptions_ == before && !(out().empty() && err().empty())) wait_for_events();
}

}  // namespace gradlane
