// beginnings.cc - what an operation does before its first element: seeds, looks at the tensor, agrees (lane's thread)
#include <array>
#include <cmath>

#include "collectives/descriptor.h"
#include "collectives/exchange/exchange_state.h"

namespace gradlane {
namespace {

// What of a tensor lies how: this exchange's part and those of others.
struct Whole {
  unsigned parts;
  size_t length;
  size_t pitch;
};
Whole whole_of(const Operation& op, unsigned world) noexcept {
  return {.parts = has_shares(op.kind) ? world : 1,
          .length = op.whole != 0 ? op.whole : op.count,
          .pitch = op.pitch != 0 ? op.pitch : op.count};
}

}  // namespace

// Of the operation's codecs as they are now.
void ExchangeState::make_coders(Running& it) noexcept {
  const Operation& op = it.operation;
  it.coder = Coder(op.type, *op.codec, op.reduction);
  it.back = Coder(op.type, op.codec->is(*op.back_codec) ? op.codec->for_results() : *op.back_codec, op.reduction);
}

void ExchangeState::begin(Running& it) noexcept {
  Operation& op = it.operation;
  const bool coded = encoded(op.type, op.reduction);
  if (coded) {
    const uint64_t seed = seed_of(membership_.generation(), it.number, op.tag);
    op.codec->seed(seed, own_seed_of(seed, config_.rank));
    op.back_codec->seed(seed, own_seed_of(seed, config_.rank));
    make_coders(it);
  }
  it.bid = std::nullopt;
  it.ready = !coded || !reduces(op.kind) || op.codec->passes() == 0 || op.count == 0;
  it.lead = it.ready ? 0 : 1;
  if (it.ready) {
    note_looked(it);
  } else {
    *it.look = Look{};
  }
}

// One operation after the other looks; small ones need not wait until a large one has.
void ExchangeState::begin_waiting() noexcept {
  others_look_ = false;
  size_t floats = kLookSlice;  // of a poll: 20 us where memory is slow
  for (const bool small : {true, false}) {
    for (uint64_t id = first_started(); id < base_ + started_; ++id) {
      Running& it = table_[id % table_.size()];
      if (it.id != id || it.state != Running::State::kRunning || it.ready) continue;
      if (small != (it.operation.count <= kLookSlice / 2)) continue;
      look_on(it, floats);
      go_on(it);
    }
  }
}

// Whole slices, as many as `floats` has. They are this rank's contribution, all of it, wherever it is divided.
void ExchangeState::look_on(Running& it, size_t& floats) noexcept {
  const Operation& op = it.operation;
  Codec& codec = *it.operation.codec;
  const Whole whole = whole_of(op, config_.world);
  const size_t all = whole.parts * whole.length;
  Look& look = *it.look;
  while (look.pass < codec.passes()) {
    look.values = std::clamp<uint64_t>(look.next, look.values, all);
    if (look.values == all) {
      codec.pass_over(look);
      continue;
    }
    const size_t first = look.values % whole.length;
    const size_t count = std::min(kLookSlice - first % kLookSlice, whole.length - first);
    if (count > floats) break;
    const auto place = static_cast<ptrdiff_t>(look.values / whole.length * whole.pitch + first);
    const ptrdiff_t at = place - static_cast<ptrdiff_t>(op.offset);
    const Origin from = origin_at(it, at, true);
    codec.look(look, {.in = static_cast<const float*>(op.data) + at,
                      .residual = from.residual,
                      .second = from.second,
                      .floats = count,
                      .position = from.position});
    floats -= count;
  }
  if (look.pass == codec.passes()) {
    note_looked(it);
  } else {
    more_ = true;
  }
}

void ExchangeState::note_looked(Running& it) noexcept {
  if (!it.counted && it.operation.lookers != nullptr) it.operation.lookers->fetch_sub(1, std::memory_order_acq_rel);
  it.counted = true;
}

// It has looked, perhaps: tells what it has found, and begins if all others have.
void ExchangeState::go_on(Running& it) noexcept {
  if (!it.counted) return;
  const Operation& op = it.operation;
  if (op.lookers != nullptr && op.lookers->load(std::memory_order_acquire) != 0) {
    others_look_ = true;
    return;
  }
  if (op.codec->row().agreement == Agreement::kNone) {
    settle(it, 0);
    return;
  }
  if (!it.bid) {
    const float offer = op.codec->offer(*it.look);
    it.bid = std::isfinite(offer) && offer > 0 ? offer : 0.0F;
    it.takers = it.announce;
    for (size_t link = 0; link < links_.size(); ++link) it.announce.set(link);
  }
  if (const auto all = agreed(it)) settle(it, *all);
}

std::optional<float> ExchangeState::agreed(const Running& it) const noexcept {
  if (unheard(it) != links_.size()) return std::nullopt;
  std::array<float, kMaxWorld> offers;
  offers[config_.rank] = *it.bid;
  for (size_t link = 0; link < links_.size(); ++link) offers[links_[link].peer()] = *announced_by(link, it).offer;
  return agreed_on(it.operation.codec->row().agreement, std::span(offers).first(config_.world));
}

// The first link by which no offer has come; as many as there are: all have.
size_t ExchangeState::unheard(const Running& it) const noexcept {
  for (size_t link = 0; link < links_.size(); ++link) {
    const auto& announced = announced_by(link, it);
    if (!announced.valid || announced.number != it.number || !announced.offer) return link;
  }
  return links_.size();
}

void ExchangeState::settle(Running& it, float agreed) noexcept {
  Operation& op = it.operation;
  const bool alike = op.codec->is(*op.back_codec);
  op.codec->settle(*it.look, agreed);
  if (alike) op.back_codec = op.codec;
  make_coders(it);
  it.ready = true;
  if (trace_ != nullptr) trace_started(it);
  it.announce |= it.takers;
  look_at_loss(it);
  const bool owns = it.strategy->has_owners() && it.own != it.blocks.blocks();
  if (owns) begin_turns(it);
}

}  // namespace gradlane
