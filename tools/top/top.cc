// top.cc - `gradlane top`: requests and views until the user ends it (main thread)
#include "tools/top/top.h"

#include <fmt/format.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <ctime>

#include "base/error.h"
#include "tools/exit_status.h"
#include "tools/top/askers.h"
#include "tools/top/table.h"
#include "tools/top/terminal.h"

namespace gradlane {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr double kLeastInterval = 0.1;
constexpr double kMostInterval = 3600;
constexpr milliseconds kLookEvery{200};  // longest time between two checks whether operations are in flight
constexpr size_t kKeptEvents = 8;
constexpr milliseconds kPatience{3000};     // longest wait for remote nodes if there is only one view
constexpr milliseconds kLivePatience{500};  // longest wait for remote nodes at the start of a live view

// Lines on daemons that came and went, with the time of day, as people may read them hours later.
class Events {
 public:
  void add(const std::vector<std::string>& events) {
    for (const std::string& event : events) {
      const std::time_t now = std::time(nullptr);
      std::tm local{};
      localtime_r(&now, &local);
      lines_.push_back(fmt::format("{:02}:{:02}:{:02} {}", local.tm_hour, local.tm_min, local.tm_sec, event));
    }
    if (lines_.size() > kKeptEvents) lines_.erase(lines_.begin(), lines_.end() - kKeptEvents);
  }
  [[nodiscard]] const std::vector<std::string>& lines() const { return lines_; }

 private:
  std::vector<std::string> lines_;
};

// Waits for `time`. Returns false if a signal asks to end.
bool pass(const TerminalSignals& signals, Clock::duration time) {
  const auto end = Clock::now() + time;
  for (;;) {
    const auto left = std::chrono::ceil<milliseconds>(end - Clock::now()).count();
    if (left <= 0) return true;
    pollfd watched{signals.fd(), POLLIN, 0};
    if (poll(&watched, 1, static_cast<int>(left)) <= 0) continue;
    const int signal = signals.next();
    if (signal != 0 && signal != SIGWINCH && signal != SIGTSTP) return false;
    if (signal == SIGTSTP) raise(SIGSTOP);
  }
}

// Prints one view, with rates between two requests that are an interval apart.
int show_once(Askers& askers, const TerminalSignals& signals, const TopOptions& options, milliseconds interval) {
  std::vector<std::string> events;
  (void)askers.take(events);
  if (!pass(signals, interval)) return 0;
  askers.wait_for_news(kPatience);
  const Askers::Ring ring = askers.take(events);
  const TopView view = top_view(ring.looks, ring.others);
  if (options.json) {
    fmt::print("{}\n", top_json(view).dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
    return 0;
  }
  for (const PageLine& line : page_of(view, events, 0, 0)) fmt::print("{}\n", line.text);
  return 0;
}

int show_live(Askers& askers, const TerminalSignals& signals, milliseconds interval) {
  Events events;
  Terminal terminal(signals);
  TopView view;
  // The first figures come soon, even if the interval is long.
  for (auto next = Clock::now() + std::min(2 * kLookEvery, interval);; next += interval) {
    std::vector<std::string> news;
    const Askers::Ring ring = askers.take(news);
    view = top_view(ring.looks, ring.others);
    events.add(news);
    next = std::max(next, Clock::now());
    Terminal::Event event = Terminal::Event::kResized;
    while (event == Terminal::Event::kResized) {
      if (!terminal.show(page_of(view, events.lines(), terminal.width(), terminal.height()))) return 0;
      event = terminal.wait(next);
    }
    if (event == Terminal::Event::kEnd) return 0;
  }
}

}  // namespace

int run_top(const TopOptions& options) {
  if (!(options.interval >= kLeastInterval && options.interval <= kMostInterval)) {
    throw SetupError(fmt::format("--interval {}: must be 0.1 to 3600 seconds", options.interval));
  }
  const std::string first = options.one ? admin_path(options.place) : admin_paths(options.place).front();
  const milliseconds interval(std::lround(options.interval * 1e3));
  const TerminalSignals signals;
  try {
    const bool once = options.once || options.json || !has_screen();
    Askers askers(first, options.one,
                  {.every = std::min(kLookEvery, interval / 2),
                   .interval = interval,
                   .patience = once ? kPatience : kLivePatience});
    if (once) return show_once(askers, signals, options, interval);
    return show_live(askers, signals, interval);
  } catch (const SetupError& error) {
    std::fprintf(stderr, "gradlane: %s\n", error.what());
    return kExitNoDaemon;
  }
}

}  // namespace gradlane
