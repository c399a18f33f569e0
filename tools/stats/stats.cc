// stats.cc - `gradlane stats`: requests, output on the terminal, the end by Ctrl-C (main thread)
#include "tools/stats/stats.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cmath>
#include <cstdio>
#include <optional>

#include "base/error.h"
#include "base/parse.h"
#include "tools/stats/parts.h"
#include "tools/stats/plan_table.h"
#include "tools/stats/table.h"

namespace gradlane {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kAnswerTime{5000};
constexpr double kLeastInterval = 0.1;
constexpr double kMostInterval = 3600;

double interval_of(const std::string& text) {
  // The text is empty or "true" if the option has no value.
  if (text.empty() || text == "true") return 1;
  const auto seconds = parse_real(text, kLeastInterval, kMostInterval);
  if (!seconds) throw SetupError("--watch " + text + ": must be 0.1 to 3600 seconds");
  return *seconds;
}

// Blocks SIGINT and SIGTERM, so that they arrive only in wait().
class Interval {
 public:
  explicit Interval(double seconds)
      : time_{.tv_sec = static_cast<time_t>(seconds),
              .tv_nsec = static_cast<long>((seconds - std::floor(seconds)) * 1e9)} {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGINT);
    sigaddset(&signals_, SIGTERM);
    sigprocmask(SIG_BLOCK, &signals_, nullptr);
  }
  // Waits for the interval. Returns false if a signal asks to end.
  [[nodiscard]] bool wait() const { return sigtimedwait(&signals_, nullptr, &time_) < 0; }

 private:
  timespec time_;
  sigset_t signals_{};
};

// Refreshes in place if standard output is a terminal. Otherwise it prints one block after the other.
class Screen {
 public:
  Screen() : terminal_(isatty(STDOUT_FILENO) == 1) {
    if (terminal_) put("\x1b[?25l\x1b[2J");  // hide the cursor, clear
  }
  ~Screen() {
    if (terminal_) put("\x1b[?25h");
  }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  // Writes all lines at once, over the old ones, so that nothing flickers.
  void show(const std::vector<std::string>& lines) const {
    winsize size{};
    if (!terminal_ || ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_row < 2 || size.ws_col < 2) {
      return put(fmt::format("{}\n\n", fmt::join(lines, "\n")));
    }
    std::string text = "\x1b[H";
    for (size_t i = 0; i < lines.size() && i + 1U < size.ws_row; ++i) {
      text += lines[i].substr(0, size.ws_col - 1U) + "\x1b[K\n";
    }
    put(text + "\x1b[J");
  }

 private:
  static void put(const std::string& text) {
    std::fwrite(text.data(), 1, text.size(), stdout);
    std::fflush(stdout);
  }
  const bool terminal_;
};

int watch(const std::string& path, const StatsOptions& options, double seconds) {
  const Interval interval(seconds);
  std::optional<Screen> screen;
  std::optional<nlohmann::json> before;
  Clock::time_point looked_at;
  for (bool first = true;; first = false) {
    std::vector<std::string> lines;
    try {
      nlohmann::json document = ask_admin(path, "stats", kAnswerTime);
      const auto now = Clock::now();
      // A daemon that has restarted counts from 0.
      if (before && before->value("pid", 0) != document.value("pid", 0)) before.reset();
      const std::chrono::duration<double> since = now - looked_at;
      if (options.json)
        lines = {(options.plan ? at(document, "plan") : document).dump()};
      else if (options.plan)
        lines = plan_lines(document);
      else
        lines = stats_lines(document, before ? &*before : nullptr, since.count(), options.all);
      before = std::move(document);
      looked_at = now;
    } catch (const SetupError& error) {
      if (first) throw;
      if (options.json)
        std::fprintf(stderr, "gradlane: %s\n", error.what());
      else
        lines = {error.what()};
      before.reset();
    }
    if (options.json) {
      if (!lines.empty() && (std::puts(lines.front().c_str()) < 0 || std::fflush(stdout) != 0)) return 0;
    } else {
      if (!screen) screen.emplace();
      screen->show(lines);
      if (std::ferror(stdout) != 0) return 0;  // the reader has closed its end
    }
    if (!interval.wait()) return 0;
  }
}

// Does not check the ring: the choices are known in any state of the ring.
int look_at_plan(const std::string& path, const StatsOptions& options) {
  const nlohmann::json document = ask_admin(path, "stats", kAnswerTime);
  if (options.freeze) {
    try {
      fmt::print("{}", frozen_plan(document));
    } catch (const SetupError& error) {
      std::fprintf(stderr, "gradlane: %s\n", error.what());
      return kStatsUnsettled;
    }
  } else if (options.json) {
    fmt::print("{}\n", at(document, "plan").dump(2));
  } else {
    fmt::print("{}\n", fmt::join(plan_lines(document), "\n"));
  }
  return kStatsFine;
}

int look(const std::string& path, const StatsOptions& options) {
  if (options.watch) return watch(path, options, interval_of(options.interval));
  if (options.plan || options.freeze) return look_at_plan(path, options);
  const nlohmann::json document = ask_admin(path, "stats", kAnswerTime);
  if (options.json) {
    fmt::print("{}\n", document.dump(2));
  } else {
    fmt::print("{}\n", fmt::join(stats_lines(document, nullptr, 0, options.all), "\n"));
  }
  return stats_status(document);
}

}  // namespace

int run_stats(const StatsOptions& options) {
  (void)interval_of(options.interval);
  const std::string path = admin_path(options.place);
  signal(SIGPIPE, SIG_IGN);
  try {
    return look(path, options);
  } catch (const SetupError& error) {
    std::fprintf(stderr, "gradlane: %s\n", error.what());
    return kStatsNoDaemon;
  }
}

}  // namespace gradlane
