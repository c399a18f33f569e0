// control.cc - runs without elements: that an operation has started, or failed (packet path)
#include <algorithm>
#include <optional>

#include "collectives/descriptor.h"
#include "collectives/exchange/exchange_state.h"
#include "collectives/mismatch.h"

namespace gradlane {
namespace {

constexpr int32_t kFarBack = 1 << 30;  // operations; further back than any number that can still be under way

}  // namespace

// ---- Received.

std::optional<Counter> ExchangeState::check_control(const Run& run, size_t link) noexcept {
  const size_t bytes = run.header.bytes;
  switch (run.header.phase) {
    case Phase::kStart:
      if (!is_start(run.payload)) return Counter::kBadRun;
      if (run.header.first >= kMaxStages) return Counter::kBadRun;
      break;
    case Phase::kAbort:
      if (bytes != sizeof(AbortNotice)) return Counter::kBadRun;
      break;
    default:
      if (bytes != 0) return Counter::kBadRun;
  }
  // An operation may fail only where it has started, and its sender knows that. A neighbour may have started more than
  // this rank, but no more than what can be in flight on all ranks between.
  const auto ahead = static_cast<int32_t>(run.header.operation - static_cast<uint32_t>(started_));
  const int32_t most = run.header.phase == Phase::kStart ? int32_t{kMaxOperations} * int32_t{kMaxWorld} : 0;
  if (ahead >= most || ahead <= -kFarBack) return Counter::kNotStarted;
  if (run.header.phase != Phase::kGrant) return std::nullopt;
  const Running& it = at(run.header.operation);
  if (it.state != Running::State::kRunning || it.number != run.header.operation) return std::nullopt;  // over
  const unsigned block = run.header.block;
  // What is delivered needs no grants.
  if (!it.ready || !it.strategy->has_owners() || delivers(it.task.kind) || block >= it.blocks.blocks())
    return Counter::kBadRoute;
  return it.strategy->owner(it.task, block) == links_[link].peer() ? std::nullopt : std::optional(Counter::kBadRoute);
}

void ExchangeState::take_abort(const Run& run) noexcept {
  Running& it = at(run.header.operation);
  if (it.state != Running::State::kRunning || it.number != run.header.operation) return;
  const auto notice = load<AbortNotice>(run.payload.data());
  const auto code = std::min(static_cast<FailureCode>(notice.code), FailureCode::kDoubled);
  const auto field = static_cast<Field>(notice.field);
  const bool is_later =
      field == Field::kStrategy || field == Field::kBackCodec || field == Field::kChoice || field == Field::kTensor;
  fail_everywhere(it,
                  {.code = code == FailureCode::kNone ? FailureCode::kAborted : code,
                   .rank = notice.rank,
                   .field = is_later ? field : std::min(field, Field::kTag),
                   .ours = notice.ours,
                   .theirs = notice.theirs},
                  run.header.block);
}

void ExchangeState::take_start(size_t link, const Run& run) noexcept {
  PeerState& peer = peers_[link];
  const uint32_t number = run.header.operation;
  // They start in order, but this may come out of order, even when its place is that of a later one.
  if (static_cast<int32_t>(number + 1 - peer.started) > 0) peer.started = number + 1;
  auto& announced = peer.announced[number % peer.announced.size()];
  const Descriptor theirs = read_descriptor(run.payload);
  if (!announced.valid || static_cast<int32_t>(number - announced.number) >= 0) {
    auto stage = static_cast<uint8_t>(run.header.first);
    std::optional<float> offer = read_offer(run.payload);
    if (announced.valid && announced.number == number) {
      stage = std::max(stage, announced.stage);
      if (announced.offer) offer = announced.offer;
    }
    announced = {number, true, stage, offer, theirs};
  }
  if (static_cast<int32_t>(static_cast<uint32_t>(started_) - number) <= 0) return;  // compared when it starts
  Running& it = at(number);
  if (it.state != Running::State::kRunning || it.number != number) return;
  compare(it, link, theirs);
}

void ExchangeState::compare(Running& it, size_t link, const Descriptor& theirs) noexcept {
  const Failure failure = mismatch(it.descriptor, theirs, static_cast<uint16_t>(links_[link].peer()));
  if (failure) fail_everywhere(it, failure, config_.rank);
}

// ---- Sent.

void ExchangeState::send_control(Nanos now) noexcept {
  for (Running& it : table_) {
    if (it.announce.none() && it.spread.none()) continue;
    // Looking at the tensor, it takes nothing, and has nothing to say.
    if (it.state == Running::State::kRunning && !it.ready && !it.bid) continue;
    RunHeader header = run_header(it, it.coder, Phase::kStart, 0, 0);
    header.first = it.ready ? it.task.stage + it.lead : 0;
    uint8_t start[kMostStart];
    const std::span bytes = std::span(start).first(write_start(it.descriptor, it.bid, start));
    for (size_t link = it.announce._Find_first(); link < links_.size(); link = it.announce._Find_next(link)) {
      if (outboxes_[link].control(header, bytes, now)) it.announce.reset(link);
    }
    if (it.spread.any()) send_aborts(it, now);
    release_if_read(it);
  }
}

// To those that have started it: others would not know what it is about. The next rank always tells; of others, those
// that have not told in the time that the operation had here do something else.
void ExchangeState::send_aborts(Running& it, Nanos now) noexcept {
  const RunHeader header = run_header(it, it.coder, Phase::kAbort, it.origin, 0);
  const Failure& failure = it.failure;
  const AbortNotice notice{.ours = failure.ours,
                           .theirs = failure.theirs,
                           .rank = failure.rank,
                           .code = static_cast<uint8_t>(failure.code),
                           .field = static_cast<uint8_t>(failure.field),
                           .reserved = 0};
  uint8_t bytes[sizeof(AbortNotice)];
  store(bytes, notice);
  for (size_t link = it.spread._Find_first(); link < links_.size(); link = it.spread._Find_next(link)) {
    const bool told = peer_started(link, it) && outboxes_[link].control(header, bytes, now);
    if (told || (link != Topology::kSuccessor && now >= it.deadline)) it.spread.reset(link);
  }
}

}  // namespace gradlane
