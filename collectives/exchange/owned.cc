// owned.cc - operations whose blocks have owners: contributions to them, sums in turns, results to all (packet path)
#include <algorithm>
#include <cstring>

#include "collectives/exchange/exchange_state.h"

namespace gradlane {

void ExchangeState::begin_owned(Running& it) noexcept {
  it.window = Turns::window(config_.world) / it.coder.element_bytes();
  it.to_send = 0;
  if (delivers(it.task.kind)) {
    begin_delivery(it);
    return;
  }
  const unsigned blocks = it.blocks.blocks();
  it.own_block = blocks;  // nothing goes round
  it.own = blocks;
  it.queued = 0;
  it.next_owner = 1;
  for (unsigned block = 0; block < blocks; ++block) {
    const unsigned owner = it.strategy->owner(it.task, block);
    const size_t count = it.blocks.count(block);
    it.sent[block] = 0;
    it.limit[block] = std::min(it.window, count);
    if (owner != config_.rank && adds(it.task.kind)) it.to_send += count;
    if (owner == config_.rank) {
      it.own = block;
    } else if (reaches_all(it.task.kind)) {
      it.results_left += count;
    }
  }
  const bool owns = it.own != blocks && it.blocks.count(it.own) != 0;
  if (!owns) it.own = blocks;
  if (owns || !adds(it.task.kind)) it.announce |= it.strategy->sources(it.task);
  if (owns && adds(it.task.kind) && it.ready) begin_turns(it);
}

void ExchangeState::begin_turns(Running& it) noexcept {
  const Coder plain(it.operation.type, find_codec(kNoCodec, 0, it.operation.codec->isa()).value_or(*it.operation.codec),
                    it.operation.reduction);
  it.room->turns.begin(it.blocks.count(it.own), turn_of(it, config_.rank), it.coder, plain);
  it.room->turns.start(
      [&](size_t first, size_t count, uint8_t* sums, bool begins) { add_own(it, first, count, sums, begins); },
      [](size_t, size_t, const uint8_t*) {});  // others come behind
}

bool ExchangeState::owned_done(const Running& it) const noexcept {
  const bool owns = !delivers(it.task.kind) && it.own != it.blocks.blocks();
  if (owns && it.queued != it.blocks.count(it.own)) return false;
  return it.to_send == 0;
}

// ---- Contributions.

// Each owner gets about a packet at a time, from the rank before this one backwards: so each is sent to by another
// rank, and in the order of the turns.
void ExchangeState::send_owned(Running& it, Nanos now) noexcept {
  queue_results(it, now);
  if (it.to_send == 0) return;
  const unsigned blocks = it.blocks.blocks();
  const auto block_of = [&](unsigned back) {
    return blocks == 1 ? 0 : (2 * config_.world + config_.rank - back - it.task.rotation) % config_.world;
  };
  const unsigned others = blocks == 1 ? 1 : config_.world - (delivers(it.task.kind) ? 0 : 1);
  for (bool again = true; again;) {
    again = false;
    for (unsigned i = 0; i < others; ++i) {
      again |= send_contribution(it, block_of(1 + (it.next_owner - 1 + i) % others), now);
      if (more_) {  // that is enough for one poll
        it.next_owner = 1 + (it.next_owner + i) % others;
        return;
      }
    }
  }
}

bool ExchangeState::send_contribution(Running& it, unsigned block, Nanos now) noexcept {
  const size_t first = it.sent[block];
  if (first >= it.limit[block]) return false;
  const size_t end = std::min({it.limit[block], first + it.offer, first - first % it.window + it.window});
  const Step step = it.strategy->start(it.task, block);
  const bool delivered = delivers(it.task.kind);
  if (!step.send && !delivered) return false;  // its own
  const size_t sent = step.send
                          ? send(it, step, block, first, elements(it, block, first), end - first, contributes(it), now)
                          : copy_own(it, block, first);
  it.sent[block] += sent;
  it.to_send -= sent;
  if (sent == 0 && step.send) unsent_[step.link] = 1;
  return sent != 0;
}

void ExchangeState::take_grant(const Run& run) noexcept {
  Running& it = at(run.header.operation);
  if (it.state != Running::State::kRunning || it.number != run.header.operation) return;
  const unsigned block = run.header.block;
  const size_t told = run.header.first * it.coder.granule();
  const size_t count = it.blocks.count(block);
  const size_t limit = told >= count ? count : told - told % it.coder.cut();
  it.limit[block] = std::max(it.limit[block], limit);
}

// ---- What an owner does.

void ExchangeState::take_contribution(const Run& run, size_t link) noexcept {
  Running& it = *run.operation;
  counters_.add(Counter::kRunsMerged);
  it.room->turns.take(
      turn_of(it, links_[link].peer()), run.header.first * it.coder.granule(), run.header.count, run.payload,
      [&](size_t first, size_t count, uint8_t* sums, bool begins) { add_own(it, first, count, sums, begins); },
      [&](size_t first, size_t count, const uint8_t* sums) {
        uint8_t* const to = elements(it, it.own, first);
        std::memcpy(to, sums, count * it.coder.element_bytes());
        if (sums_end(it)) it.coder.finish(to, count, origin(it, it.own, first, false).position);
      });
}

// This rank's own elements, rounded as all contributions are.
void ExchangeState::add_own(Running& it, size_t first, size_t count, uint8_t* sums, bool begins) noexcept {
  for (size_t done = 0; done < count;) {
    const EncodeResult encoded = it.coder.encode(elements(it, it.own, first + done), count - done,
                                                 origin(it, it.own, first + done, contributes(it)), scratch_);
    const std::span block = std::span(scratch_).first(encoded.bytes);
    uint8_t* const out = sums + done * it.coder.element_bytes();
    (void)(begins ? it.coder.decode(block, out, encoded.floats) : it.coder.add(block, out, encoded.floats));
    done += encoded.floats;
  }
}

void ExchangeState::send_grants(Running& it, Nanos now) noexcept {
  if (it.own == it.blocks.blocks() || !adds(it.task.kind) || !it.room->turns.moved()) return;
  for (unsigned turn = 0; turn < config_.world; ++turn) {
    const size_t limit = it.room->turns.grant(turn);
    if (limit == 0) continue;
    const unsigned rank = (it.strategy->first_of(it.task, it.own) + turn) % config_.world;
    const size_t granule = it.coder.granule();
    const RunHeader header = run_header(it, it.coder, Phase::kGrant, it.own, limit + granule - 1);
    if (outboxes_[topology_.link_to(rank).value_or(0)].control(header, {}, now)) {
      it.room->turns.told(turn, limit);
    } else {
      it.room->turns.again();
    }
  }
}

// Results of this rank's block that are there, into packets for all others.
void ExchangeState::queue_results(Running& it, Nanos now) noexcept {
  if (it.own == it.blocks.blocks()) return;
  const size_t count = it.blocks.count(it.own);
  size_t ready = count;
  if (adds(it.task.kind)) {
    ready = it.strategy->streams() || it.room->turns.complete() ? it.room->turns.done() : 0;
  } else {
    for (size_t link = 0; link < links_.size(); ++link) {
      if (!peer_started(link, it)) return;
    }
  }
  if (ready != count) ready -= ready % it.back.cut();
  while (it.queued < ready && queue_result(it, ready - it.queued, now)) {
  }
}

bool ExchangeState::queue_result(Running& it, size_t count, Nanos now) noexcept {
  if (elements_left_ == 0) {
    more_ = true;
    return false;
  }
  uint8_t* const data = elements(it, it.own, it.queued);
  const Origin from = origin(it, it.own, it.queued, false);
  const bool kept = !reaches_all(it.task.kind);
  EncodeResult encoded;
  const Nanos began = trace_ == nullptr ? 0 : trace_begins();
  if (kept) {
    encoded = it.back.represent(data, count, from, scratch_);
    (void)it.back.decode(std::span(scratch_).first(encoded.bytes), data, encoded.floats);
  } else {
    const RunHeader header = run_header(it, it.back, Phase::kGather, it.own, it.queued);
    fanout_.prepare();
    Outbox& outbox = fanout_.outbox();
    Outbox::Place place;
    do {
      place = outbox.reserve(Outbox::kResults, header, it.back, it.back.cut(), 0, now);
      if (place.bytes.empty()) return false;
      encoded = it.back.represent(data, std::min(count, place.elements), from, place.bytes);
    } while (encoded.floats == 0 && outbox.begin_next(Outbox::kResults, now));
    if (encoded.floats == 0) return false;
    (void)it.back.decode(place.bytes.first(encoded.bytes), data, encoded.floats);
    const size_t bytes = outbox.commit(Outbox::kResults, place, header, it.back, encoded.floats, encoded.bytes);
    count_sent(it, Phase::kGather, it.own, links_.size(), bytes * links_.size(), encoded.floats * links_.size());
  }
  if (began != 0) trace_time(it, &TraceOperation::encode, began);
  complete(it, it.own, it.queued, encoded.floats);
  it.queued += encoded.floats;
  elements_left_ -= std::min(elements_left_, encoded.floats);
  return true;
}

// ---- Packets for all.

// As flush() does it: what is not full waits for more, unless nothing else is on its way, and never for long.
void ExchangeState::flush_results(Nanos now) noexcept {
  Outbox& outbox = fanout_.outbox();
  (void)fanout_.pump(now);
  if (!outbox.holds(Outbox::kResults)) return;
  bool coming = false;
  for (const Running& it : table_) {
    coming |= it.state == Running::State::kRunning && it.strategy->has_owners() && it.own != it.blocks.blocks() &&
              it.queued != it.blocks.count(it.own);
  }
  const bool waits = !outbox.full(Outbox::kResults) && !fanout_.empty() && coming;
  if (waits && now < flush_results_at()) return;
  fanout_.prepare();
  outbox.flush(Outbox::kResults, now);
  (void)fanout_.pump(now);
}

Nanos ExchangeState::flush_results_at() const noexcept {
  const Outbox& outbox = fanout_.outbox();
  const Nanos since = outbox.held_since(Outbox::kResults);
  if (since == kNever || !fanout_.takes(false)) return kNever;
  return since + config_.max_hold * config_.world;
}

// Whom it waits for: an owner that has not started it, whoever has sent this rank least, or else an owner.
unsigned ExchangeState::owed(const Running& it) const noexcept {
  if (delivers(it.task.kind)) return owed_delivery(it);
  unsigned owner = links_.front().peer();
  for (unsigned block = 0; block < it.blocks.blocks(); ++block) {
    const unsigned of = it.strategy->owner(it.task, block);
    const auto link = topology_.link_to(of);
    if (!link || it.blocks.count(block) == 0) continue;
    owner = of;
    if (!peer_started(*link, it)) return of;
  }
  const bool waits = it.own != it.blocks.blocks() && adds(it.task.kind) && !it.room->turns.complete();
  return waits ? (it.strategy->first_of(it.task, it.own) + it.room->turns.last()) % config_.world : owner;
}

}  // namespace gradlane
