// recorder.cc - takes a trace of one daemon, in a thread of its own
#include "tools/trace/recorder.h"

#include <fmt/format.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/error.h"
#include "tools/admin/client.h"
#include "tools/admin/json_fields.h"

namespace gradlane {
namespace {

constexpr std::chrono::milliseconds kEvery{200};
// limit for an answer. A daemon that gets no request for 3 s ends its trace.
constexpr std::chrono::milliseconds kPatience{2500};

int64_t monotonic() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

Recorder::Recorder(std::string path) {
  recording_.path = std::move(path);
  const int64_t asked = monotonic();
  const nlohmann::json answer = ask_admin(recording_.path, "trace start", kPatience);
  add_answer(recording_, answer, asked, monotonic());
  id_ = number_at(answer, "trace");
  if (id_ == 0) {
    throw SetupError(fmt::format("another trace of node {} is running; one whose program was killed ends within 4 s",
                                 recording_.node));
  }
}

bool Recorder::ask(const std::string& request) {
  const int64_t asked = monotonic();
  const nlohmann::json answer = ask_admin(recording_.path, fmt::format("{} {}", request, id_), kPatience);
  add_answer(recording_, answer, asked, monotonic());
  size_t operations = 0;
  for (const LaneRecording& lane : recording_.lanes) operations += lane.operations.size() + lane.skipped;
  operations_.store(operations, std::memory_order_relaxed);
  on_ = flag_at(answer, "on");
  return !flag_at(answer, "more");
}

void Recorder::begin() {
  thread_ = std::jthread([this](const std::stop_token& stop) { fetch(stop); });
}

void Recorder::fetch(const std::stop_token& stop) {
  std::mutex mutex;
  std::condition_variable_any wake;
  try {
    while (!stop.stop_requested()) {
      std::unique_lock lock(mutex);
      wake.wait_for(lock, stop, kEvery, [] { return false; });
      while (!stop.stop_requested() && !ask("trace fetch")) {
      }
      if (!on_) break;
    }
    bool all = on_ ? ask("trace stop") : ask("trace fetch");
    const bool whole = on_;
    while (!all) all = ask("trace fetch");
    if (!whole) throw SetupError("its trace ended early: this program did not fetch it for 3 s, or it ran for 700 s");
  } catch (const SetupError& error) {
    recording_.missing = error.what();
    gone_.store(true, std::memory_order_relaxed);
  }
}

NodeRecording Recorder::finish() {
  thread_.request_stop();
  thread_.join();
  recording_.clock = fit_clock(recording_.readings);
  return std::move(recording_);
}

}  // namespace gradlane
