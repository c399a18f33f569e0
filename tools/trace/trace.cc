// trace.cc - `gradlane trace`: takes a trace of a ring, writes it, prints a summary (main thread)
#include "tools/trace/trace.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/error.h"
#include "tools/admin/json_fields.h"
#include "tools/exit_status.h"
#include "tools/trace/events.h"
#include "tools/trace/recorder.h"
#include "tools/trace/spans.h"
#include "tools/trace/summary.h"
#include "tools/version.h"

namespace gradlane {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;

constexpr double kLeastSeconds = 0.1;
constexpr double kMostSeconds = 600;
constexpr std::chrono::milliseconds kStatsTime{2500};

using Recorders = std::vector<std::unique_ptr<Recorder>>;

// SIGINT and SIGTERM end the trace, not the program: the records up to then are written. Must be made before any
// thread.
class Signals {
 public:
  Signals() {
    sigemptyset(&set_);
    sigaddset(&set_, SIGINT);
    sigaddset(&set_, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &set_, nullptr);
  }
  // Waits for `time`. Returns false if a signal has come.
  [[nodiscard]] bool wait(std::chrono::milliseconds time) const {
    const timespec most{.tv_sec = time.count() / 1000, .tv_nsec = time.count() % 1000 * 1'000'000};
    return sigtimedwait(&set_, nullptr, &most) < 0;
  }

 private:
  sigset_t set_{};
};

// The file for the trace. It is opened before the trace is taken, so that errors show early.
class Output {
 public:
  explicit Output(std::string path) : path_(std::move(path)) {
    if (path_.empty()) return;
    fresh_ = !std::filesystem::exists(path_);
    open("a");
  }
  ~Output() {
    if (file_ != nullptr) std::fclose(file_);
    if (file_ != nullptr && fresh_) std::remove(path_.c_str());
  }
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  void write(const std::string& text) {
    std::fclose(file_);
    open("w");
    const bool all = std::fwrite(text.data(), 1, text.size(), file_) == text.size();
    const bool closed = std::fclose(std::exchange(file_, nullptr)) == 0;
    if (!all || !closed) throw SetupError(fmt::format("cannot write {}: {}", path_, std::strerror(errno)));
  }

 private:
  void open(const char* mode) {
    file_ = std::fopen(path_.c_str(), mode);
    if (file_ == nullptr) throw SetupError(fmt::format("cannot write {}: {}", path_, std::strerror(errno)));
  }

  const std::string path_;
  std::FILE* file_ = nullptr;
  bool fresh_ = false;
};

// Returns the admin sockets of the first daemon's ring. Leaves out other rings in its folder. Warns about daemons that
// do not answer.
std::vector<std::string> ring_paths(const TraceOptions& options) {
  if (options.one) return {admin_path(options.place)};
  std::vector<std::string> paths = admin_paths(options.place);
  const json first = ask_admin(paths.front(), "stats", kStatsTime);
  if (text_at(first, "mode") == "accelerator") {
    throw SetupError(
        fmt::format("{} is the socket of an accelerator, which has no operations to trace", paths.front()));
  }
  std::erase_if(paths, [&](const std::string& path) {
    if (path == paths.front()) return false;
    try {
      const json other = ask_admin(path, "stats", kStatsTime);
      return text_at(other, "config_digest") != text_at(first, "config_digest");
    } catch (const SetupError& error) {
      std::fprintf(stderr, "gradlane: not traced: %s\n", error.what());
      return true;
    }
  });
  return paths;
}

Recorders start(const TraceOptions& options) {
  Recorders recorders;
  for (const std::string& path : ring_paths(options)) recorders.push_back(std::make_unique<Recorder>(path));
  for (const auto& it : recorders) it->begin();
  return recorders;
}

void wait(const Recorders& recorders, double seconds, const Signals& signals) {
  const bool shown = isatty(STDERR_FILENO) == 1;
  std::fprintf(stderr, "gradlane: tracing %zu node%s for %.4g s; Ctrl-C ends it\n", recorders.size(),
               recorders.size() == 1 ? "" : "s", seconds);
  const auto begin = Clock::now();
  const auto all = std::chrono::duration<double>(seconds);
  for (;;) {
    const std::chrono::duration<double> passed = Clock::now() - begin;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(all - passed);
    size_t operations = 0;
    bool some = false;
    for (const auto& it : recorders) {
      operations += it->operations();
      some |= !it->gone();
    }
    if (shown) {
      std::fprintf(stderr, "\r%4.1f of %.4g s, %zu nodes, %zu operations ", std::min(passed, all).count(), seconds,
                   recorders.size(), operations);
    }
    if (left.count() <= 0 || !some || !signals.wait(std::min(left, std::chrono::milliseconds(200)))) break;
  }
  if (shown) std::fprintf(stderr, "\r\x1b[K");
}

// Returns the spans of trainers during the trace, on its clock.
std::vector<TrainerSpan> spans_of(const TraceOptions& options, const std::vector<NodeRecording>& nodes, int64_t begin) {
  std::vector<TrainerSpan> all;
  for (const std::string& path : options.spans) {
    for (TrainerSpan& span : read_spans(path)) all.push_back(std::move(span));
  }
  const auto from = static_cast<Nanos>(begin);
  const auto length = static_cast<Nanos>(summary_of(nodes).seconds * 1e9);
  std::vector<TrainerSpan> spans = cut_spans(all, from, from + length);
  std::erase_if(spans, [&](const TrainerSpan& it) {
    const unsigned node = it.rank / nodes.front().ranks_per_node;
    return std::ranges::find(nodes, node, &NodeRecording::node) == nodes.end();
  });
  return spans;
}

int report(const std::vector<NodeRecording>& nodes, int64_t begin, const TraceOptions& options, Output& output) {
  const TraceSummary summary = summary_of(nodes);
  if (options.json) {
    fmt::print("{}\n", summary_json(summary).dump(2));
  } else {
    fmt::print("{}\n", fmt::join(summary_lines(summary), "\n"));
  }
  std::fflush(stdout);
  if (!options.summary) output.write(trace_events(nodes, spans_of(options, nodes, begin), GRADLANE_RELEASE));
  if (!options.summary) {
    fmt::print(options.json ? stderr : stdout, "{}: open it in ui.perfetto.dev or chrome://tracing\n", options.output);
  }
  for (const NodeRecording& node : nodes) {
    if (!node.missing.empty()) return kExitBrokenOff;
  }
  return 0;
}

}  // namespace

int run_trace(const TraceOptions& given) {
  TraceOptions options = given;
  if (!(options.seconds >= kLeastSeconds && options.seconds <= kMostSeconds)) {
    throw SetupError(fmt::format("--seconds {}: must be 0.1 to 600 seconds", options.seconds));
  }
  if (options.summary && !options.output.empty())
    throw SetupError("--summary writes no file, but --output names one: leave one of them out");
  if (options.output.empty() && !options.summary) options.output = "gradlane-trace.json";
  for (const std::string& path : options.spans) (void)read_spans(path);
  Output output(options.output);
  const Signals signals;
  std::vector<NodeRecording> nodes;
  try {
    Recorders recorders = start(options);
    wait(recorders, options.seconds, signals);
    for (const auto& it : recorders) nodes.push_back(it->finish());
  } catch (const SetupError& error) {
    std::fprintf(stderr, "gradlane: %s\n", error.what());
    return kExitNoDaemon;
  }
  std::ranges::sort(nodes, {}, &NodeRecording::node);
  for (const NodeRecording& node : nodes) {
    if (!node.missing.empty()) std::fprintf(stderr, "gradlane: node %u: %s\n", node.node, node.missing.c_str());
  }
  const int64_t begin = unite(nodes);
  return report(nodes, begin, options, output);
}

}  // namespace gradlane
