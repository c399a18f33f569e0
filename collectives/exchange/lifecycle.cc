// lifecycle.cc - the life of operations: started, over (worker thread)
#include <algorithm>
#include <limits>

#include "collectives/exchange/exchange_state.h"
#include "collectives/exchange/loss_sample.h"

namespace gradlane {
namespace {

// An operation that lasts so long may wait for a rank whose trainer has gone, and which cannot know that it is awaited:
// of an operation only those are told at its start who are to send something, and the rank before.
constexpr Nanos kTellAll = 5 * kMillisecond;

}  // namespace

// ---- Starting.

void ExchangeState::start_waiting(Nanos now) noexcept {
  if (!membership_.whole()) return;
  while (base_ + started_ != submitted_) {
    Running& next = table_[(base_ + started_) % table_.size()];
    ++started_;
    start(next, now);
  }
}

void ExchangeState::start(Running& it, Nanos now) noexcept {
  const Operation& op = it.operation;
  begin(it);
  const size_t granule = it.coder.granule();
  const bool few = (op.count + granule - 1) / granule < config_.world && !has_shares(op.kind);
  it.task = {.kind = op.kind,
             .root = op.root,
             .rotation = few && it.strategy->rotates() ? it.number % config_.world : 0,
             .stage = 0};
  it.announce.reset();
  if (topology_.ring_links() != 0) it.announce.set(topology_.predecessor());
  begin_stage(it);
  // Those that send in a later stage must be able to tell if they fail before.
  for (Task later = it.task; later.stage + 1 < it.strategy->stages(op.kind);) {
    ++later.stage;
    it.announce |= it.strategy->sources(later);
  }
  if (it.ready) look_at_loss(it);
  it.takers.reset();
  it.state = Running::State::kRunning;
  if (op.timeout == 0) it.deadline = now + config_.operation_timeout;
  it.tell_at = now + kTellAll;
  note_deadline(it);
  if (trace_ != nullptr) trace_started(it);
  if (it.strategy->senders() > 1) ++sharing_;
  if (it.strategy->senders() > senders_ || it.blocks.blocks() > blocks_) share_links();

  if (it.failure) {  // aborted while it waited
    fail_everywhere(it, it.failure, config_.rank);
    return;
  }
  for (size_t link = 0; link < peers_.size() && it.state == Running::State::kRunning; ++link) {
    const auto& announced = peers_[link].announced[it.number % peers_[link].announced.size()];
    if (announced.valid && announced.number == it.number) compare(it, link, announced.descriptor);
  }
}

void ExchangeState::begin_stage(Running& it) noexcept {
  const Operation& op = it.operation;
  const size_t granule = it.coder.granule();
  const Division division = it.strategy->division(it.task);
  it.base = 0;
  if (has_shares(op.kind)) {
    it.blocks = Blocks::equal(division.blocks, op.count, granule, op.pitch != 0 ? op.pitch : op.count);
  } else {
    const Blocks shares = Blocks::spread(division.shares, op.count, granule);
    it.base = shares.offset(division.share);
    it.blocks = Blocks::spread(division.blocks, shares.count(division.share), granule);
  }
  const unsigned blocks = it.blocks.blocks();
  it.room->partial.begin(blocks, it.blocks.stride());
  it.room->result.begin(blocks, it.blocks.stride());
  it.sums_left = it.results_left = 0;
  it.coming = {};
  it.own_block = 0;
  it.own_sent = 0;
  it.others_sent = 0;
  it.offer = std::max({16 * granule, it.coder.cut(), it.back.cut()});
  if (it.strategy->has_owners()) {
    begin_owned(it);
    return;
  }
  const LinkSet sources = it.strategy->sources(it.task);
  it.announce |= sources;
  it.from = sources._Find_first();
  for (unsigned block = 0; block < blocks; ++block) {
    const Step sum = it.strategy->arrival(it.task, Phase::kReduce, block, it.from);
    if (sum.expected) it.sums_left += it.blocks.count(block);
    if (sum.expected && sum.send) it.coming[channel_of(sum)] += it.blocks.count(block);
    const Step result = it.strategy->arrival(it.task, Phase::kGather, block, it.from);
    if (result.expected) it.results_left += it.blocks.count(block);
  }
  for (size_t i = 0; i < coming_.size(); ++i) coming_[i] += it.coming[i];
}

// Links that end in one queue share it while that lasts.
void ExchangeState::share_links() noexcept {
  unsigned senders = 1;
  blocks_ = 1;
  for (const Running& it : table_) {
    if (it.state != Running::State::kRunning) continue;
    senders = std::max(senders, it.strategy->senders());
    blocks_ = std::max(blocks_, it.blocks.blocks());
  }
  if (senders == senders_) return;
  senders_ = senders;
  for (Link& link : links_) link.share(senders);
}

void ExchangeState::look_at_loss(Running& it) noexcept {
  it.loss = sample_loss(it.operation, it.blocks, it.id);
  if (it.loss.values == 0) return;
  counters_.add(Counter::kLossyOperations);
  counters_.add(Counter::kLossyValues, it.loss.values);
  counters_.add(Counter::kLossyZeroed, it.loss.zeroed);
  counters_.add(Counter::kLossyNormPpm, static_cast<uint64_t>(it.loss.lost_share() * 1e6));
}

// ---- Ending.

void ExchangeState::end_if_done(Running& it) noexcept {
  if (it.state != Running::State::kRunning) return;
  const bool done = it.sums_left == 0 && it.results_left == 0 && it.own_block == it.blocks.blocks() &&
                    it.room->partial.empty() && it.room->result.empty() &&
                    (!it.strategy->has_owners() || owned_done(it));
  if (!done) return;
  if (!last_stage(it)) {
    if (trace_ != nullptr) trace_->write_hops(place_of(it));
    ++it.task.stage;
    begin_stage(it);
    more_ = true;
    return;
  }
  // A rank that has nothing to send learns only now whether the next one means the same operation.
  const Step next = ring_.failure(config_.rank);
  if (!next.send || peer_started(next.link, it)) end(it, {});
}

void ExchangeState::end(Running& it, const Failure& failure) noexcept {
  // While it waits, looks or agrees it owes what it owed; and others may still look at that, on threads of their own.
  const bool began = it.state == Running::State::kRunning && it.ready;
  it.residual_cleared = failure && began && it.operation.residual != nullptr;
  if (it.residual_cleared) {
    const Operation& op = it.operation;
    const size_t pitch = op.pitch != 0 ? op.pitch : op.count;
    const unsigned parts = has_shares(op.kind) ? config_.world : 1;
    for (unsigned state = 0; state < op.codec->states(); ++state) {
      float* const first = op.residual + state * op.state_pitch;
      for (unsigned part = 0; part < parts; ++part) std::fill_n(first + part * pitch, op.count, 0.0F);
    }
  }
  note_looked(it);
  if (it.state == Running::State::kRunning) {
    for (size_t i = 0; i < coming_.size(); ++i) coming_[i] -= it.coming[i];
    if (it.strategy->senders() > 1) --sharing_;
  }
  if (trace_ != nullptr) trace_end(it, failure, 0);
  it.state = Running::State::kOver;
  it.failure = failure;
  --active_;
  ++unread_;
  if (active_ == 0 || (sharing_ == 0 && senders_ > 1)) share_links();
  if (failure) note(failure);
  counters_.add(failure ? Counter::kOperationsFailed : Counter::kOperationsDone);
  if (!failure) {
    const auto kind = static_cast<size_t>(it.operation.strategy.value_or(StrategyId{}).kind);
    operation_times_[kind].add(seen_at_ - std::min(seen_at_, it.submitted_at));
  }
  if (active_ == 0) operations_at_ = kNever;  // else check_deadlines() finds out
}

void ExchangeState::note(const Failure& failure) noexcept {
  if (failed_ && failed_ != failure) {
    std::ranges::move_backward(past_failures_.begin(), past_failures_.end() - 1, past_failures_.end());
    past_failures_.front() = {failed_, counters_[Counter::kOperationsFailed]};
  }
  failed_ = failure;
}

// It fails here, and the others will hear of it.
void ExchangeState::fail_everywhere(Running& it, const Failure& failure, unsigned origin) noexcept {
  end(it, failure);
  it.origin = static_cast<uint8_t>(origin);
  // Where blocks have owners, the origin tells them all. Where operations differ, nobody is through with any.
  const bool owners_told = it.strategy->has_owners() && (origin != config_.rank || it.own == it.blocks.blocks());
  const bool tells = !owners_told && failure.code != FailureCode::kMismatch;
  it.spread = tells ? it.strategy->dependents(it.task) : LinkSet{};
  if (const Step step = ring_.failure(origin); step.send) it.spread.set(step.link);
}

void ExchangeState::check_deadlines(Nanos now) noexcept {
  const bool waiting = base_ + started_ != submitted_;
  if (waiting && !membership_.whole() && membership_.refused()) {
    // Somebody must do something about it: all ranks hear of that.
    handle(membership_.give_up(membership_.refused()));
    return;
  }
  if (now < operations_at_) return;
  for (Running& it : table_) {
    if (it.state == Running::State::kRunning && now >= it.tell_at) tell_all(it);
    if (now < it.deadline) continue;
    if (it.state == Running::State::kWaiting) {
      fail_waiting(membership_.no_ring());
      return;
    }
    if (it.state == Running::State::kRunning) {
      const Nanos own = it.operation.timeout;
      const Failure failure{.code = FailureCode::kStuck,
                            .rank = static_cast<uint16_t>(awaited(it)),
                            .ours = own != 0 ? own : config_.operation_timeout,
                            .theirs = own != 0 ? 0U : 1U};
      fail_everywhere(it, failure, config_.rank);
    }
  }
  set_deadline();
}

void ExchangeState::tell_all(Running& it) noexcept {
  it.tell_at = kNever;
  for (size_t link = 0; link < links_.size(); ++link) {
    if (!peer_started(link, it)) it.announce.set(link);
  }
}

// All that wait, here only: nobody knows of them, and the next ones have the first numbers.
void ExchangeState::fail_waiting(const Failure& failure) noexcept {
  for (Running& it : table_) {
    if (it.state != Running::State::kWaiting) continue;
    end(it, failure);
    release_if_read(it);
  }
  base_ = submitted_;
  started_ = 0;
}

// The nearest rank that has not started it, or else the one that data comes from.
unsigned ExchangeState::awaited(const Running& it) const noexcept {
  if (links_.empty() || (!it.ready && !it.bid)) return config_.rank;
  if (!it.ready) return links_[unheard(it)].peer();
  if (it.strategy->has_owners()) return owed(it);
  const size_t successor = Topology::kSuccessor;
  if (it.from != successor && !peer_started(successor, it)) return links_[successor].peer();
  return links_[it.from].peer();
}

// A new session: the links are fresh, and so are the numbers.
void ExchangeState::handle(Membership::Event event) noexcept {
  if (event == Membership::Event::kNone) return;
  fanout_.reset();
  for (Outbox& outbox : outboxes_) outbox.reset();
  senders_ = 1;  // links are new
  for (PeerState& peer : peers_) {
    peer.started = 0;
    for (auto& announced : peer.announced) announced.valid = false;
  }
  if (event == Membership::Event::kMerged) return;
  for (Running& it : table_) {
    if (it.state == Running::State::kFree) continue;
    if (it.state != Running::State::kOver) end(it, membership_.cause());
    it.announce.reset();
    it.spread.reset();
    release_if_read(it);
  }
  base_ = submitted_;
  started_ = 0;
  set_deadline();
}

// Its place is free again when the caller knows how it ended, and the others know what they must.
void ExchangeState::release_if_read(Running& it) noexcept {
  const bool told = it.announce.none() && it.spread.none();
  if (it.state != Running::State::kOver || !told || it.unread) return;
  it.state = Running::State::kFree;
  it.room->taken = false;
}

void ExchangeState::set_deadline() noexcept {
  operations_at_ = kNever;
  for (const Running& it : table_) {
    if (it.state == Running::State::kWaiting || it.state == Running::State::kRunning) {
      operations_at_ = std::min(operations_at_, it.deadline);
    }
    if (it.state == Running::State::kRunning) operations_at_ = std::min(operations_at_, it.tell_at);
  }
}

}  // namespace gradlane
