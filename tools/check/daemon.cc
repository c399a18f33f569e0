// daemon.cc - the daemon that `gradlane check` asks: one that already runs, or one that it starts (main thread only)
#include "tools/check/daemon.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cctype>
#include <csignal>
#include <future>
#include <vector>

#include "base/error.h"
#include "base/file_descriptor.h"
#include "tools/admin/client.h"
#include "tools/run/settings.h"

namespace gradlane {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kStartTime{15'000};
constexpr milliseconds kGrace{5'000};  // between SIGTERM and SIGKILL
constexpr milliseconds kTick{20};
constexpr size_t kMostLog = size_t{64} << 10;
constexpr size_t kLogLines = 5;

// Removes "2026-11-21 19:30:41.780 " at the beginning of a line, because verdicts have no times.
std::string without_time(const std::string& line) {
  constexpr std::string_view kPattern = "0000-00-00 00:00:00.000 ";
  if (line.size() < kPattern.size()) return line;
  for (size_t i = 0; i < kPattern.size(); ++i) {
    const bool digit = std::isdigit(static_cast<unsigned char>(line[i])) != 0;
    if (kPattern[i] == '0' ? !digit : line[i] != kPattern[i]) return line;
  }
  return line.substr(kPattern.size());
}

std::vector<std::string> last_lines(const std::string& log, size_t most) {
  std::vector<std::string> lines;
  for (size_t at = 0; at < log.size();) {
    const size_t end = std::min(log.find('\n', at), log.size());
    if (end > at) lines.push_back(without_time(log.substr(at, end - at)));
    at = end + 1;
  }
  if (lines.size() > most) lines.erase(lines.begin(), lines.end() - static_cast<ptrdiff_t>(most));
  return lines;
}

}  // namespace

bool somebody_listens(const std::string& path) {
  const FileDescriptor fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  return connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 || errno == EAGAIN ||
         errno == EACCES;
}

CheckDaemon::CheckDaemon(const NodeConfig& config, std::optional<unsigned> rank)
    : config_(config), rank_(rank), signals_({SIGINT, SIGTERM, SIGHUP}), runs_(somebody_listens(config.admin)) {}

CheckDaemon::~CheckDaemon() { stop(); }

bool CheckDaemon::start(CheckReport& report) {
  if (runs_) return true;
  try {
    ChildSpec spec;
    spec.command = {find_daemon(), "--config", config_.file};
    if (rank_) spec.command.insert(spec.command.end(), {"--rank", std::to_string(*rank_)});
    spec.environment = environment_with({});
    spec.one_pipe = true;
    child_ = start_child(spec, signals_.mask_before());
  } catch (const SetupError& error) {
    report.fail("daemon", error.what(), "the other checks need gradlaned");
    return false;
  }
  if (wait_until_ready()) return true;
  tell_failure(report);
  return false;
}

bool CheckDaemon::wait_until_ready() {
  const auto end = Clock::now() + kStartTime;
  while (Clock::now() < end && !ended()) {
    if (somebody_listens(config_.admin)) return true;
    wait(kTick);
  }
  return false;
}

void CheckDaemon::tell_failure(CheckReport& report) {
  const std::string how =
      ended_ ? ending_text(status_) : fmt::format("is not ready after {} s", kStartTime.count() / 1000);
  std::vector<std::string> lines = last_lines(log_, kLogLines);
  const std::string last = lines.empty() ? "it printed nothing" : lines.back();
  const bool known = report.has_failed_like(last);
  report.fail("daemon", fmt::format("gradlaned {}: {}", how, known ? "for the reason above" : last),
              "the neighbours were not checked");
  if (!lines.empty()) lines.pop_back();
  for (const std::string& line : lines) report.note("log of gradlaned", line);
}

nlohmann::json CheckDaemon::ask(const std::string& request, milliseconds patience) {
  // Another thread asks, so that this thread can handle signals and read the log meanwhile.
  auto answer = std::async(std::launch::async, [&] { return ask_admin(config_.admin, request, patience); });
  while (answer.wait_for(milliseconds(0)) != std::future_status::ready) {
    try {
      wait(kTick);
    } catch (const SetupError&) {
      stop();
      answer.wait();
      throw;
    }
  }
  return answer.get();
}

void CheckDaemon::wait(milliseconds time) {
  std::array<pollfd, 2> both = {{{signals_.fd(), POLLIN, 0}, {child_.out, POLLIN, 0}}};
  poll(both.data(), both.size(), static_cast<int>(time.count()));
  read_log();
  if (signals_.next() != 0) throw SetupError("interrupted");
}

void CheckDaemon::read_log() {
  if (child_.out < 0) return;
  std::array<char, 4096> piece;
  ssize_t bytes = 0;
  while ((bytes = read(child_.out, piece.data(), piece.size())) > 0) {
    log_.append(piece.data(), static_cast<size_t>(bytes));
    if (log_.size() > kMostLog) log_.erase(0, log_.size() - kMostLog);
  }
  if (bytes != 0) return;
  close(child_.out);
  child_.out = -1;
}

bool CheckDaemon::ended() {
  if (!ended_ && child_.pid > 0 && waitpid(child_.pid, &status_, WNOHANG) == child_.pid) {
    ended_ = true;
    read_log();
  }
  return ended_;
}

void CheckDaemon::stop() {
  if (child_.pid <= 0 || ended()) return;
  kill(child_.pid, SIGTERM);
  const auto end = Clock::now() + kGrace;
  while (Clock::now() < end && !ended()) {
    pollfd log{child_.out, POLLIN, 0};
    poll(&log, 1, static_cast<int>(kTick.count()));
    read_log();
  }
  if (ended()) return;
  kill(child_.pid, SIGKILL);
  waitpid(child_.pid, &status_, 0);
  ended_ = true;
}

}  // namespace gradlane
