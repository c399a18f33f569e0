// askers.cc - asks daemons again and again, each in a thread of its own (threads, and the main thread)
#include "tools/top/askers.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "tools/stats/parts.h"

namespace gradlane {
namespace {

using nlohmann::json;

constexpr std::chrono::milliseconds kFirstAnswer{5000};
constexpr std::chrono::milliseconds kAnswer{2000};

bool is_refused(const json& document) {
  const json& ranks = at(document, "ranks");
  return std::ranges::any_of(ranks, [](const json& rank) { return at(rank, "ring") == "refused"; });
}

int pid_of(const json& document) { return static_cast<int>(number(at(document, "pid"))); }

}  // namespace

// ---- Asker

Asker::Asker(std::string path, std::chrono::milliseconds every)
    : path_(std::move(path)), thread_([this, every](const std::stop_token& stop) { ask(stop, every); }) {}

void Asker::ask(const std::stop_token& stop, std::chrono::milliseconds every) {
  while (!stop.stop_requested()) {
    std::string gone;
    json document;
    try {
      document = ask_admin(path_, "stats", kAnswer);
    } catch (const SetupError& error) {
      gone = error.what();
    }
    std::unique_lock lock(mutex_);
    gone_ = std::move(gone);
    if (gone_.empty()) note(std::move(document));
    asked_ = true;
    wake_.notify_all();
    wake_.wait_for(lock, stop, every, [] { return false; });
  }
}

void Asker::note(json document) {
  now_ = std::move(document);
  at_ = Clock::now();
  ++looks_;
  if (number(at(now_, "in_flight")) > 0) ++exchanging_;
}

void Asker::wait_first() {
  std::unique_lock lock(mutex_);
  wake_.wait(lock, [this] { return asked_; });
}

TopLooks Asker::take() {
  const std::scoped_lock lock(mutex_);
  // Under load an answer may take longer than from one view to the next.
  if (at_ == before_at_ && gone_ == last_.gone) return last_;
  last_ = {.path = path_, .now = now_, .before = before_, .gone = gone_};
  // Who has restarted counts from 0. Of who has gone there are no rates.
  if (pid_of(now_) != pid_of(before_) || at_ == before_at_) last_.before = nullptr;
  last_.seconds = std::chrono::duration<double>(at_ - before_at_).count();
  if (looks_ > 0) last_.exchanging = static_cast<double>(exchanging_) / looks_;
  looks_ = exchanging_ = 0;
  before_ = now_;
  before_at_ = at_;
  return last_;
}

// ---- Askers

Askers::Askers(const std::string& first, bool one, std::chrono::milliseconds every)
    : first_(first), one_(one), every_(every) {
  const json document = ask_admin(first_, "stats", kFirstAnswer);
  if (at(document, "mode") == "accelerator") {
    throw SetupError(fmt::format("{} is an accelerator's: 'gradlane stats --watch' shows it", first_));
  }
  askers_.emplace(first_, std::make_unique<Asker>(first_, every_));
  find_new();
  for (const auto& [path, asker] : askers_) asker->wait_first();
}

void Askers::find_new() {
  if (one_) return;
  AdminPlace place;
  place.admin = first_;
  for (const std::string& path : admin_paths(place)) {
    if (!askers_.contains(path)) askers_.emplace(path, std::make_unique<Asker>(path, every_));
  }
}

std::vector<TopLooks> Askers::take(std::vector<std::string>& events) {
  find_new();
  std::vector<TopLooks> ring = {askers_.at(first_)->take()};
  std::vector<TopLooks> others;
  for (const auto& [path, asker] : askers_) {
    if (path != first_) others.push_back(asker->take());
  }
  // The same folder may have daemons of other rings. Of this one's some may have another digest: they are refused.
  const auto join = [&ring](TopLooks& looks, bool same) {
    const json& first = ring.front().now;
    const bool known =
        std::ranges::any_of(ring, [&looks](const TopLooks& it) { return at(it.now, "node") == at(looks.now, "node"); });
    if (looks.now.is_null() || known || at(looks.now, "nodes") != at(first, "nodes")) return;
    if (at(looks.now, "config_digest") != at(first, "config_digest") && (same || !is_refused(looks.now))) return;
    ring.push_back(std::move(looks));
    looks.now = nullptr;
  };
  for (TopLooks& looks : others) join(looks, true);
  for (TopLooks& looks : others) join(looks, false);
  std::erase_if(ring, [](const TopLooks& it) { return it.now.is_null(); });
  for (const TopLooks& looks : ring) note_life(looks, events);
  started_ = true;
  return ring;
}

void Askers::note_life(const TopLooks& looks, std::vector<std::string>& events) {
  const auto node = static_cast<unsigned>(number(at(looks.now, "node")));
  const Life life{.pid = pid_of(looks.now), .gone = !looks.gone.empty()};
  const auto [it, added] = lives_.try_emplace(node, life);
  const Life before = std::exchange(it->second, life);
  if (added) {
    if (started_) events.push_back(fmt::format("node {} has come, pid {}", node, life.pid));
  } else if (life.gone && !before.gone) {
    events.push_back(fmt::format("node {} has gone: {}", node, looks.gone));
  } else if (life.pid != before.pid) {
    events.push_back(fmt::format("node {} has come back, pid {}", node, life.pid));
  } else if (before.gone && !life.gone) {
    events.push_back(fmt::format("node {} answers again", node));
  }
}

}  // namespace gradlane
