// askers.cc - periodic requests to daemons, each in a thread of its own (threads, and the main thread)
#include "tools/top/askers.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "tools/admin/bounded_json.h"
#include "tools/admin/http_client.h"
#include "tools/stats/parts.h"

namespace gradlane {
namespace {

using nlohmann::json;

constexpr std::chrono::milliseconds kFirstAnswer{5000};
constexpr std::chrono::milliseconds kAnswer{2000};
constexpr std::chrono::milliseconds kLeastRemote{200};  // shortest time between two requests to a remote daemon
// shortest time per node of the ring, so that clients of large rings ask each daemon less often
constexpr std::chrono::milliseconds kEachRemote{2};

bool is_refused(const json& document) {
  const json& ranks = at(document, "ranks");
  return std::ranges::any_of(ranks, [](const json& rank) { return at(rank, "ring") == "refused"; });
}

unsigned pid_of(const json& document) { return whole(at(document, "pid")); }
double up_of(const json& document) { return number(at(document, "uptime_s")); }

Asker::Ask ask_local(const std::string& path) {
  return [path](const std::stop_token&) { return ask_admin(path, "stats", kAnswer); };
}

Asker::Ask ask_remote(const std::shared_ptr<HttpClient>& client) {
  return [client](const std::stop_token& stop) {
    json document = parse_bounded(client->get("/stats", kAnswer, stop));
    if (!document.is_object()) throw SetupError("its answer is not a document of gradlaned");
    return document;
  };
}

}  // namespace

// ---- Asker

Asker::Asker(std::string path, std::chrono::milliseconds every, Ask ask)
    : path_(std::move(path)),
      ask_(std::move(ask)),
      thread_([this, every](const std::stop_token& stop) { ask_again_and_again(stop, every); }) {
  last_.path = path_;
}

void Asker::ask_again_and_again(const std::stop_token& stop, std::chrono::milliseconds every) {
  while (!stop.stop_requested()) {
    std::string gone;
    json document;
    try {
      document = ask_(stop);
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

// Ignores a document that came before: a remote daemon makes a new one only every 100 ms, however many clients ask.
void Asker::note(json document) {
  const bool known = pid_of(document) == pid_of(now_) && up_of(document) == up_of(now_) && up_of(now_) > 0;
  if (known) return;
  now_ = std::move(document);
  at_ = Clock::now();
  ++looks_;
  if (number(at(now_, "in_flight")) > 0) ++exchanging_;
}

void Asker::wait_first(Clock::time_point end) {
  std::unique_lock lock(mutex_);
  wake_.wait_until(lock, end, [this] { return asked_; });
}

void Asker::wait_news(Clock::time_point end) {
  std::unique_lock lock(mutex_);
  wake_.wait_until(lock, end, [this] { return at_ != before_at_ || !gone_.empty(); });
}

TopLooks Asker::take() {
  const std::scoped_lock lock(mutex_);
  // Under load an answer may take longer than the interval between two views. The previous documents are then shown
  // again.
  if (at_ == before_at_ && gone_ == last_.gone) return last_;
  last_ = {.path = path_, .now = now_, .before = before_, .gone = gone_};
  // A daemon that has restarted counts from 0. A daemon that has gone has no rates.
  const bool same_life = pid_of(now_) == pid_of(before_) && up_of(now_) >= up_of(before_);
  if (!same_life || at_ == before_at_) last_.before = nullptr;
  // Documents arrive with varying delays, so the daemon's uptime measures the time between two of them.
  const double between = same_life ? up_of(now_) - up_of(before_) : 0;
  last_.seconds = between > 0 ? between : std::chrono::duration<double>(at_ - before_at_).count();
  if (looks_ > 0) last_.exchanging = static_cast<double>(exchanging_) / looks_;
  looks_ = exchanging_ = 0;
  before_ = now_;
  before_at_ = at_;
  return last_;
}

// ---- Askers

Askers::Askers(const std::string& first, bool one, Pace pace) : first_(first), one_(one), pace_(pace) {
  const json document = ask_admin(first_, "stats", kFirstAnswer);
  if (at(document, "mode") == "accelerator") {
    throw SetupError(fmt::format("{} is the socket of an accelerator: use 'gradlane stats --watch'", first_));
  }
  askers_.emplace(first_, std::make_unique<Asker>(first_, pace_.every, ask_local(first_)));
  find_new();
  const auto end = Clock::now() + kFirstAnswer;
  for (const auto& [path, asker] : askers_) asker->wait_first(end);
  Ring ring{.looks = take_local(), .others = {}};
  add_remote(ring);
  const auto end_of_others = Clock::now() + pace_.patience;
  for (const auto& [place, asker] : remotes_) asker->wait_first(end_of_others);
}

// Stops all askers before the first is destroyed, so that they end at the same time.
Askers::~Askers() {
  for (const auto& [path, asker] : askers_) asker->stop();
  for (const auto& [place, asker] : remotes_) asker->stop();
}

void Askers::wait_for_news(std::chrono::milliseconds most) {
  const auto end = Clock::now() + most;
  for (const auto& [path, asker] : askers_) asker->wait_news(end);
  for (const auto& [place, asker] : remotes_) asker->wait_news(end);
}

void Askers::find_new() {
  if (one_) return;
  AdminPlace place;
  place.admin = first_;
  for (const std::string& path : admin_paths(place)) {
    if (!askers_.contains(path)) askers_.emplace(path, std::make_unique<Asker>(path, pace_.every, ask_local(path)));
  }
}

std::vector<TopLooks> Askers::take_local() {
  std::vector<TopLooks> ring = {askers_.at(first_)->take()};
  std::vector<TopLooks> others;
  for (const auto& [path, asker] : askers_) {
    if (path != first_) others.push_back(asker->take());
  }
  // The folder may also have sockets of other rings. Daemons of this ring that are refused have another digest.
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
  return ring;
}

// Returns the asker of a place, and creates it at the first call. Askers live as long as this object.
Asker& Askers::remote(const RemoteNode& node, size_t nodes) {
  auto& asker = remotes_[{node.reach, node.port}];
  if (asker == nullptr) {
    const auto every = std::max({kLeastRemote, pace_.interval / 2, static_cast<int>(nodes) * kEachRemote});
    const auto client = std::make_shared<HttpClient>(node.reach, node.port);
    asker = std::make_unique<Asker>(client->place(), every, ask_remote(client));
  }
  return *asker;
}

void Askers::add_remote(Ring& ring) {
  if (one_ || ring.looks.empty()) return;
  const json own = ring.looks.front().now;
  const std::vector<RemoteNode> nodes = remote_nodes(own);
  for (const RemoteNode& it : nodes) {
    if (std::ranges::any_of(ring.looks, [&it](const TopLooks& looks) { return at(looks.now, "node") == it.node; })) {
      continue;
    }
    if (!it.why.empty()) {
      ring.others.push_back({.node = it.node, .address = it.address, .place = "", .why = it.why});
      continue;
    }
    TopLooks looks = remote(it, nodes.size()).take();
    std::string why = looks.now.is_null() ? "no answer yet" : stranger_text(looks.now, own, it.node);
    if (!why.empty() && !looks.gone.empty()) why = looks.gone;
    if (!why.empty()) {
      ring.others.push_back(
          {.node = it.node, .address = it.address, .place = std::move(looks.path), .why = std::move(why)});
      continue;
    }
    if (!looks.gone.empty()) looks.gone = fmt::format("{}: {}", looks.path, looks.gone);
    ring.looks.push_back(std::move(looks));
  }
}

Askers::Ring Askers::take(std::vector<std::string>& events) {
  find_new();
  Ring ring{.looks = take_local(), .others = {}};
  add_remote(ring);
  for (const TopLooks& looks : ring.looks) note_life(looks, events);
  started_ = true;
  return ring;
}

void Askers::note_life(const TopLooks& looks, std::vector<std::string>& events) {
  const unsigned node = whole(at(looks.now, "node"));
  const Life life{.pid = pid_of(looks.now), .up = up_of(looks.now), .gone = !looks.gone.empty()};
  const auto [it, added] = lives_.try_emplace(node, life);
  const Life before = std::exchange(it->second, life);
  if (added) {
    if (started_) events.push_back(fmt::format("node {} has appeared, pid {}", node, life.pid));
  } else if (life.gone && !before.gone) {
    events.push_back(fmt::format("node {} has gone: {}", node, looks.gone));
  } else if (life.pid != before.pid || life.up < before.up) {
    events.push_back(fmt::format("node {} has restarted, pid {}", node, life.pid));
  } else if (before.gone && !life.gone) {
    events.push_back(fmt::format("node {} answers again", node));
  }
}

}  // namespace gradlane
