// submissions.cc - what callers ask for: operations taken or refused, read, cancelled (worker thread)
#include <algorithm>

#include "collectives/descriptor.h"
#include "collectives/exchange/exchange_state.h"
#include "collectives/strategy/codec_ways.h"

namespace gradlane {
namespace {

// Elements from the first one to the last.
size_t extent(const Operation& operation, unsigned world) {
  const size_t pitch = operation.pitch != 0 ? operation.pitch : operation.count;
  return (has_shares(operation.kind) ? (world - 1) * pitch : 0) + operation.count;
}

// `out` is there where it must be, and nothing of it is in the data.
bool has_way_out(const Operation& operation, unsigned world) {
  if (operation.kind != OpKind::kAllToAll) return operation.out == nullptr;
  if (operation.count == 0) return true;
  const size_t bytes = extent(operation, world) * element_bytes(operation.type);
  const auto data = reinterpret_cast<uintptr_t>(operation.data);
  const auto out = reinterpret_cast<uintptr_t>(operation.out);
  return out != 0 && (out >= data ? out - data : data - out) >= bytes;
}

// What is delivered travels as it is, unless an all-to-all says otherwise.
Codec codec_for(const Operation& operation, const Codec& configured) {
  const Codec plain = find_codec(kNoCodec, 0, configured.isa()).value_or(configured);
  if (operation.kind == OpKind::kGather || operation.kind == OpKind::kScatter) return plain;
  const Codec codec = operation.codec.value_or(operation.kind == OpKind::kAllToAll ? plain : configured);
  return codec.selects() && !reduces(operation.kind) ? plain : codec;
}

// What is added goes through a codec.
bool sums_coded(const Operation& operation) {
  return reduces(operation.kind) && encoded(operation.type, operation.reduction);
}

bool can_come_back(const Codec& back, const Codec& codec) {
  return back.is(codec) || (!back.finishes() && back.row().agreement == Agreement::kNone);
}

}  // namespace

Exchange::Refusal ExchangeState::check(const Operation& operation) const noexcept {
  using Refusal = Exchange::Refusal;
  if (operation.kind > kLastKind || operation.type > ElementType::kBytes) return Refusal::kBad;
  StrategyId strategy;
  if (strategy_for(operation, strategy) == nullptr) return Refusal::kStrategy;
  if (operation.back_codec && strategy.kind != StrategyId::Kind::kAggregator) return Refusal::kStrategy;
  if (operation.kind == OpKind::kBarrier) return Refusal::kNone;
  const bool sums = reduces(operation.kind);
  if (operation.reduction != Reduction::kSum && !sums) return Refusal::kBad;
  if (operation.reduction == Reduction::kAverage && !is_floating(operation.type)) return Refusal::kBad;
  if (has_root(operation.kind) && operation.root >= config_.world) return Refusal::kBad;
  const Codec codec = codec_for(operation, config_.codec);
  const bool owes = sums_coded(operation) && codec.has_feedback();
  if (operation.residual != nullptr && !owes) return Refusal::kBad;
  const bool coded = encoded(operation.type, operation.reduction);
  if (sums_coded(operation) && needs_links(codec.row()) && !all_linked_) return Refusal::kStrategy;
  if (operation.back_codec && !can_come_back(*operation.back_codec, codec)) return Refusal::kBad;
  if (coded && !fits_packet(codec, config_.mtu)) return Refusal::kPacket;
  if (operation.back_codec && !fits_packet(*operation.back_codec, config_.mtu)) return Refusal::kPacket;
  if (operation.pitch != 0 && (!has_shares(operation.kind) || operation.pitch < operation.count)) {
    return Refusal::kBad;
  }
  const size_t share = element_bytes(operation.type) * (has_shares(operation.kind) ? config_.world : 1);
  if (operation.count > config_.max_bytes / share) return Refusal::kTooLarge;
  if (operation.count != 0 && operation.data == nullptr) return Refusal::kBad;
  return has_way_out(operation, config_.world) ? Refusal::kNone : Refusal::kBad;
}

FailureText ExchangeState::packet_fault(const Operation& operation) const noexcept {
  const Codec there = codec_for(operation, config_.codec);
  const bool fits = fits_packet(there, config_.mtu);
  const Codec& codec = fits && operation.back_codec ? *operation.back_codec : there;
  return gradlane::packet_fault(codec, config_.mtu, config_.around);
}

// None: it is not to be had. What goes round the ring has the ring's name, or none.
const Strategy* ExchangeState::strategy_for(const Operation& operation, StrategyId& id) const noexcept {
  id = {};
  const bool coded = sums_coded(operation);
  const CodecRow& row = codec_for(operation, config_.codec).row();
  const auto fits = [&](const StrategyId& it) {
    return supports(it, operation.kind) && (!coded || carries(it, row, config_.world));
  };
  const auto able = [&](const Allowed& each) { return fits(each.id); };
  const bool named = operation.strategy.has_value();
  auto found = named ? std::ranges::find(allowed_, *operation.strategy, &Allowed::id) : allowed_.begin();
  if (found == allowed_.end() || !able(*found)) {
    if ((!named || *operation.strategy == id) && fits(id)) return &ring_;
    if (!named) found = std::ranges::find_if(allowed_, able);
    if (named || found == allowed_.end()) return nullptr;
  }
  id = found->id;
  return found->strategy.get();
}

// Small tensors have a room of their own in each place: so there may be many at a time. None: all others are taken.
Room* ExchangeState::room_for(const Operation& operation, size_t place) noexcept {
  const bool barrier = operation.kind == OpKind::kBarrier;
  const size_t width = element_bytes(operation.type) * (has_shares(operation.kind) ? config_.world : 1);
  size_t bytes = barrier ? sizeof(Running::token) : operation.count * width;
  // One that adds all of a tensor keeps as much for each rank.
  StrategyId strategy;
  (void)strategy_for(operation, strategy);
  const bool one_block = operation.kind == OpKind::kReduce || strategy.kind == StrategyId::Kind::kAggregator;
  if (one_block) bytes *= config_.world;
  if (bytes <= Turns::kSmallBytes) return &rooms_[place];
  const auto room = std::find_if(rooms_.begin() + static_cast<ptrdiff_t>(table_.size()), rooms_.end(),
                                 [](const Room& each) { return !each.taken; });
  return room != rooms_.end() ? &*room : nullptr;
}

Exchange::Submitted ExchangeState::submit(const Operation& operation, Nanos now) noexcept {
  Running& it = table_[submitted_ % table_.size()];
  if (it.state != Running::State::kFree) return {.id = 0, .refusal = Exchange::Refusal::kFull};
  if (const auto refusal = check(operation); refusal != Exchange::Refusal::kNone) return {.id = 0, .refusal = refusal};
  Room* const room = room_for(operation, submitted_ % table_.size());
  if (room == nullptr) return {.id = 0, .refusal = Exchange::Refusal::kFull};

  room->taken = true;
  it.room = room;
  ++active_;
  it.state = Running::State::kWaiting;
  it.unread = true;
  it.world = config_.world;
  it.id = submitted_++;
  it.number = static_cast<uint32_t>(it.id - base_);
  it.operation = operation;
  it.failure = {};
  it.announce.reset();
  it.spread.reset();
  it.loss = {};
  it.sent_bytes = 0;
  it.counted = false;
  it.submitted_at = now;
  it.deadline = now + (operation.timeout != 0 ? operation.timeout : config_.start_timeout);
  Operation& own = it.operation;
  if (own.kind == OpKind::kBarrier) {
    it.token = 1;
    own = Operation{};
    own.tag = operation.tag;
    own.timeout = operation.timeout;
    own.kind = OpKind::kBarrier;
    own.strategy = operation.strategy;
    own.type = ElementType::kInt32;
    own.count = 1;
    own.data = &it.token;
  }
  if (!has_root(own.kind)) own.root = 0;
  own.codec = codec_for(own, config_.codec);
  StrategyId id;
  it.strategy = strategy_for(own, id);
  own.strategy = id;
  if (id.kind != StrategyId::Kind::kAggregator) {
    own.back_codec = own.codec;
  } else if (!own.back_codec) {
    own.back_codec = find_codec(kNoCodec, 0, own.codec->isa());
  }
  if (own.state_pitch == 0) own.state_pitch = extent(own, config_.world);
  make_coders(it);
  it.descriptor = describe(own, *own.codec);
  it.digest = digest_of(it.descriptor);
  note_deadline(it);
  if (trace_ != nullptr) trace_submitted(it, now);
  return {.id = it.id, .refusal = Exchange::Refusal::kNone};
}

bool ExchangeState::next_completion(Completion& completion) noexcept {
  if (unread_ == 0) return false;
  // Operations complete independently: any may be the next.
  for (uint64_t id = read_; id != submitted_; ++id) {
    Running& it = table_[id % table_.size()];
    if (it.id != id || !it.unread || it.state != Running::State::kOver) continue;
    completion = {.id = id,
                  .failure = it.failure,
                  .residual_cleared = it.residual_cleared,
                  .loss = it.loss,
                  .sent_bytes = it.sent_bytes};
    it.unread = false;
    --unread_;
    release_if_read(it);
    while (read_ != submitted_ && !table_[read_ % table_.size()].unread) ++read_;
    return true;
  }
  return false;
}

void ExchangeState::abort(uint64_t id) noexcept {
  Running& it = table_[id % table_.size()];
  if (id >= submitted_ || it.id != id) return;
  const Failure failure{.code = FailureCode::kAborted, .rank = static_cast<uint16_t>(config_.rank)};
  if (it.state == Running::State::kRunning) fail_everywhere(it, failure, config_.rank);
  // One that waits keeps its number, and fails everywhere at its turn.
  if (it.state == Running::State::kWaiting) {
    it.failure = failure;
    // A ring that does not come up must not keep it for as long as the caller's limit is.
    it.deadline = std::min(it.deadline, polled_at_ + config_.start_timeout);
    set_deadline();
  }
  more_ = true;
}

void ExchangeState::close() noexcept {
  handle(membership_.give_up({.code = FailureCode::kClosed, .rank = static_cast<uint16_t>(config_.rank)}));
}

void ExchangeState::refuse(const Failure& why) noexcept {
  if (const auto link = topology_.link_to(why.rank)) handle(membership_.refuse(*link, why));
}

}  // namespace gradlane
