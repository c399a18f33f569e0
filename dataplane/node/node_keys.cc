// node_keys.cc - a node's keys, and their change while it runs (control thread only)
#include <linux/membarrier.h>
#include <spdlog/fmt/ranges.h>
#include <spdlog/spdlog.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "base/error.h"
#include "dataplane/node/key_file.h"
#include "dataplane/node/node.h"

namespace gradlane {
namespace {

// A worker that was in a round when a key was dropped may use it until the end of that round. One round more is for
// kernels that refuse the barrier of drop_old_key().
constexpr uint64_t kRoundsToForget = 2;

std::string nodes_text(const std::vector<unsigned>& nodes) {
  return fmt::format("node{} {}", nodes.size() == 1 ? "" : "s", fmt::join(nodes, ", "));
}

}  // namespace

void Node::read_keys(const PairKeys* pairs) {
  if (config_.security == Security::kNone) return;
  if (pairs != nullptr) {
    for (const auto& it : *pairs) pair_keys_.push_back(it ? std::make_unique<KeyRing>(*it) : nullptr);
    return;
  }
  keys_ = std::make_unique<KeyRing>(read_key_file(config_.key_file, "auth.key_file " + config_.key_file));
}

const KeyRing* Node::keys_of(unsigned node) const noexcept {
  return has_pair_keys() ? pair_keys_[node].get() : keys_.get();
}

void Node::rotate_key(const RingKey& key, Nanos old_for, Nanos now) {
  step_keys(now);
  if (has_pair_keys()) throw SetupError("this node has a key for each other node: restart all daemons to change them");
  if (!keys_) throw SetupError("this node has no key: set security and auth.key_file, and start all nodes again");
  if (key_change_.next) throw SetupError("another rotation is in progress; try again");
  const KeyRing::Keys keys = keys_->keys();
  const uint16_t newest = keys.newest->id();
  if (*keys.newest == key) {  // only changes how long the old key is accepted
    key_change_.old_until = keys.old != nullptr ? now + old_for : kNever;
    return step_keys(now);
  }
  if (keys.old != nullptr && *keys.old == key) {
    throw SetupError(fmt::format("key {} is the old one, which is accepted for {} s more: make a new one",
                                 key_name(key.id()), (key_change_.old_until - now) / kSecond));
  }
  if (keys.with(key.id()) != nullptr) {
    throw SetupError(fmt::format("another key of the node has the id {}, too: make a new one", key_name(key.id())));
  }
  if (keys.old != nullptr) {
    if (const auto nodes = nodes_without(newest); !nodes.empty()) {
      throw SetupError(
          fmt::format("{} do not use the latest key {} yet: rotate to it there first, or give it here again with "
                      "--old-for 0, which cuts these nodes off",
                      nodes_text(nodes), key_name(newest)));
    }
    drop_old_key();
  }
  key_change_.next.emplace(key);
  key_change_.next_old_for = old_for;
  step_keys(now);
}

bool Node::rotating(Nanos now) {
  step_keys(now);
  return key_change_.next.has_value();
}

void Node::drop_old_key() {
  keys_->drop_old();
  // From here on, all workers see the drop when they begin a round.
  (void)syscall(__NR_membarrier, MEMBARRIER_CMD_GLOBAL, 0, 0);
  key_change_.old_until = kNever;
  key_change_.rounds.clear();
  for (const auto& worker : workers_) key_change_.rounds.push_back(worker->rounds());
}

void Node::step_keys(Nanos now) {
  if (!keys_) return;
  const KeyRing::Keys keys = keys_->keys();
  if (keys.old != nullptr && now >= key_change_.old_until) {
    const auto nodes = nodes_without(keys.newest->id());
    if (nodes.empty()) {
      spdlog::info("node {}: key {} is not accepted any more", config_.rank, key_name(keys.old->id()));
    } else {
      spdlog::warn("node {}: key {} is not accepted any more, and {} do not use key {}: rotate to it there",
                   config_.rank, key_name(keys.old->id()), nodes_text(nodes), key_name(keys.newest->id()));
    }
    drop_old_key();
  }
  std::vector<uint64_t>& rounds = key_change_.rounds;
  for (size_t i = 0; i < rounds.size(); ++i) {
    if (workers_[i]->running() && workers_[i]->rounds() < rounds[i] + kRoundsToForget) return;
  }
  if (!rounds.empty()) keys_->wipe();
  rounds.clear();
  if (!key_change_.next) return;
  spdlog::info("node {}: key {} is the newest, and key {} is accepted for {} s", config_.rank,
               key_name(key_change_.next->id()), key_name(keys.newest->id()), key_change_.next_old_for / kSecond);
  keys_->add(*key_change_.next);
  key_change_.old_until = now + key_change_.next_old_for;
  key_change_.next.reset();
}

// Returns the nodes with a link whose latest hello was sealed with another key. A link that has never been up counts,
// too.
std::vector<unsigned> Node::nodes_without(uint16_t key) const {
  std::vector<unsigned> nodes;
  for_each_lane([&](const Lane& lane, unsigned) {
    for (size_t i = 0; i < lane.links(); ++i) {
      const LinkSnapshot link = lane.link_snapshot(i);
      const unsigned node = link.rank / ranks_per_node(config_);
      if (node != config_.rank && link.key != key) nodes.push_back(node);
    }
  });
  std::ranges::sort(nodes);
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  return nodes;
}

std::optional<Node::KeyFigures> Node::key_figures(Nanos now) const {
  if (!keys_) return std::nullopt;
  const KeyRing::Keys keys = keys_->keys();
  KeyFigures figures;
  figures.newest = keys.newest->id();
  figures.waits_for = nodes_without(figures.newest);
  if (keys.old != nullptr) {
    figures.old = keys.old->id();
    figures.old_for = key_change_.old_until - std::min(now, key_change_.old_until);
  }
  return figures;
}

}  // namespace gradlane
