// node_trace.cc - traces of a node: starts them, hands out their records, ends them (control thread only)
#include "dataplane/node/node_trace.h"

#include <algorithm>
#include <bit>

namespace gradlane {

uint64_t NodeTrace::start(Nanos now) {
  if (on_ || !over() || (now < asked_at_ + kLease && !drained())) return 0;
  const size_t words =
      std::clamp(std::bit_floor(kMostBytes / sizeof(uint64_t) / logs_.size()), kLeastWords, kMostWords);
  for (Log& it : logs_) {
    if (it.log == nullptr) it.log = it.lane->make_trace(words);
    it.log->start();
    it.channel->trace.store(it.log.get(), std::memory_order_release);
  }
  on_ = true;
  began_at_ = asked_at_ = now;
  return ++id_;
}

bool NodeTrace::renew(uint64_t id, Nanos now) noexcept {
  if (id != id_ || id == 0) return false;
  asked_at_ = now;
  return true;
}

void NodeTrace::stop() noexcept {
  on_ = false;
  for (const Log& it : logs_) {
    if (it.log != nullptr) it.log->stop();
  }
}

bool NodeTrace::over() const noexcept {
  return std::ranges::all_of(logs_, [](const Log& it) { return it.log == nullptr || it.log->over(); });
}

bool NodeTrace::drained() const noexcept {
  return std::ranges::all_of(logs_, [](const Log& it) { return it.log == nullptr || it.log->empty(); });
}

void NodeTrace::maintain(Nanos now) noexcept {
  if (on_ && (now > asked_at_ + kLease || now > began_at_ + kLongest)) stop();
}

std::vector<NodeTrace::Part> NodeTrace::take(bool& more) {
  std::vector<Part> parts;
  more = false;
  for (const Log& it : logs_) {
    if (it.log == nullptr) continue;
    Part& part = parts.emplace_back();
    part.rank = it.lane->rank();
    part.lane = it.number;
    it.log->take(part.words, kTakenAtOnce / logs_.size());
    part.dropped = it.log->dropped();
    part.skipped = it.log->skipped();
    more |= !it.log->empty();
  }
  return parts;
}

}  // namespace gradlane
