// departures.cc - packets that start here: own elements, what was put off (packet path)
#include <algorithm>
#include <cstring>
#include <optional>

#include "collectives/crc32c.h"
#include "collectives/exchange/exchange_state.h"

namespace gradlane {
namespace {

constexpr size_t kRoundsPerPoll = 64;  // of a world of one, so that a poll stays short

// That a poll encodes. Packets of zeros have many elements each, and what arrives meanwhile waits: a whole window of
// them would take milliseconds.
constexpr size_t kElementsPerPoll = 4 * kMaxRunElements;

constexpr size_t kSmall = size_t{64} << 10;  // bytes of a tensor

// An offer of about so many elements.
size_t whole_cuts(const Running& it, size_t elements) {
  const size_t cut = std::max(it.coder.cut(), it.back.cut());
  return std::min((elements + cut - 1) / cut, kMaxRunElements / cut) * cut;
}

}  // namespace

// In the order in which they were submitted.
template <typename Visit>
void ExchangeState::for_running(Visit visit) noexcept {
  const uint64_t end = base_ + started_;
  for (uint64_t id = first_started(); id < end; ++id) {
    Running& it = table_[id % table_.size()];
    if (it.id == id && it.state == Running::State::kRunning && it.ready) visit(it);
  }
}

// Sums and results that arrive are passed on at once if the link has room, and may exceed its window a little: whatever
// goes round takes up its place at every rank, and the ring does not fill up with beginnings. What found no room is in
// the tensor, and goes before own elements. A node can therefore take any packet at any time, whatever its successor
// does: nothing waits in a circle.
void ExchangeState::pump(Nanos now) noexcept {
  more_ = false;
  elements_left_ = kElementsPerPoll;
  for (Outbox& outbox : outboxes_) outbox.try_again();
  fanout_.outbox().try_again();
  if (started_ == 0) return;
  begin_waiting();
  for_running([&](Running& it) {
    if (it.strategy->has_owners()) send_grants(it, now);
  });
  send_control(now);
  std::ranges::fill(unsent_, uint8_t{0});
  bool more = false;  // was there to send
  for_running([&](Running& it) {
    while (it.own_sent < it.others_sent && it.own_block != it.blocks.blocks() && send_own(it, now)) {
    }
    while (!it.room->partial.empty() && send_deferred(it, Phase::kReduce, now)) {
    }
    while (!it.room->result.empty() && send_deferred(it, Phase::kGather, now)) {
    }
    more |= !it.room->partial.empty() || !it.room->result.empty();
  });
  // Barriers and scalars need not wait until a large tensor is through.
  for (const bool small : {true, false}) {
    for_running([&](Running& it) {
      if (small != (it.blocks.elements() * it.coder.element_bytes() <= kSmall)) return;
      while (it.own_block != it.blocks.blocks() && send_own(it, now)) {
      }
      more |= it.own_block != it.blocks.blocks();
      if (it.strategy->has_owners()) send_owned(it, now);
      end_if_done(it);
    });
  }
  flush_results(now);
  for (size_t link = 0; link < links_.size(); ++link) {
    const bool left = more || unsent_[link] != 0;
    if (left && !links_[link].can_send()) links_[link].count_stall();
    flush(link, left, now);
  }
}

// Sends one run of what is in the tensor; false if nothing can be sent now.
bool ExchangeState::send_deferred(Running& it, Phase phase, Nanos now) noexcept {
  Deferred& deferred = phase == Phase::kReduce ? it.room->partial : it.room->result;
  const size_t granule = it.coder.granule();
  const Deferred::Run marked = deferred.next(it.offer / granule);
  const size_t first = marked.first * granule;
  const size_t count = std::min(marked.count * granule, it.blocks.count(marked.block) - first);
  // Sums were on their way to being passed on; results are passed on as those that arrive, or, where this rank is the
  // last to add, as its own.
  Step step = it.strategy->arrival(it.task, phase, marked.block, it.from);
  const bool relayed = step.expected && phase == Phase::kGather;
  if (!step.expected) step = it.strategy->arrival(it.task, Phase::kReduce, marked.block, it.from);
  // It is stored, unless it has become a result since.
  step.store = step.begins && it.coder.finishes();
  if (!peer_takes(it, step) || !links_[step.link].can_send()) return false;
  uint8_t* const data = relayed ? read_result(it, marked.block, first, count) : elements(it, marked.block, first);
  if (data == nullptr) return false;
  const size_t sent = send(it, step, marked.block, first, data, count, false, now);
  if (sent == 0) return false;
  deferred.clear(marked.block, marked.first, (sent + granule - 1) / granule);
  if (phase == Phase::kGather) complete(it, marked.block, first, sent);
  return true;
}

// Copies a result that was stored with digests to where no trainer can write. If the trainer has changed it, fails
// the operation on all ranks that are not done with it, and returns null.
uint8_t* ExchangeState::read_result(Running& it, unsigned block, size_t first, size_t count) noexcept {
  const size_t bytes = count * it.coder.element_bytes();
  std::memcpy(private_.data(), elements(it, block, first), bytes);
  const uint32_t* digest = digests(it, block, first);
  for (size_t at = 0; at < bytes; at += kGranuleBytes) {
    if (*digest++ == crc32c(kCrcStart, private_.data() + at, std::min(kGranuleBytes, bytes - at))) continue;
    const Failure failure{
        .code = FailureCode::kAborted, .rank = static_cast<uint16_t>(config_.rank), .field = Field::kTensor};
    fail_everywhere(it, failure, config_.rank);
    return nullptr;
  }
  return private_.data();
}

// Sends a run of this rank's own elements; false if nothing can be sent now.
bool ExchangeState::send_own(Running& it, Nanos now) noexcept {
  const Step step = it.strategy->start(it.task, it.own_block);
  const size_t block_count = step.expected ? it.blocks.count(it.own_block) : 0;
  if (it.own_sent == block_count) {
    ++it.own_block;
    it.own_sent = 0;
    return true;
  }
  if (!step.send) return round_own(it, block_count);
  const size_t first = it.own_sent;
  const size_t count = std::min(block_count - first, it.offer);
  uint8_t* data = elements(it, it.own_block, first);
  if (it.task.stage != 0 && step.phase == Phase::kGather) {  // results of the stage before
    if (!peer_takes(it, step) || !links_[step.link].can_send()) return false;
    data = read_result(it, it.own_block, first, count);
    if (data == nullptr) return false;
  }
  const size_t sent = send(it, step, it.own_block, first, data, count, contributes(it), now);
  it.own_sent += sent;
  // A share of a sum, on its last round.
  if (step.phase == Phase::kGather) complete(it, it.own_block, first, sent);
  return sent != 0;
}

// Encodes elements of a block, from element `first` on, which are at `data`, behind what is in the open packet. If the
// outcome is a result here already, `data` gets what the others will decode. Returns how many there was room for.
size_t ExchangeState::send(Running& it, const Step& step, unsigned block, size_t first, uint8_t* data, size_t count,
                           bool contributes, Nanos now) noexcept {
  if (!peer_takes(it, step) || !links_[step.link].can_send()) return 0;
  if (elements_left_ == 0) {
    more_ = true;
    return 0;
  }
  const Outbox::Channel channel = channel_of(step);
  const Coder& coder = step.phase == Phase::kGather ? it.back : it.coder;
  const RunHeader header = run_header(it, coder, step.phase, block, first);
  Outbox& outbox = outboxes_[step.link];
  const bool apart = it.strategy->has_owners() && first % it.window == 0;
  const Origin from = origin(it, block, first, contributes);
  Outbox::Place place;
  EncodeResult encoded{};
  const Nanos began = trace_ == nullptr ? 0 : trace_begins();
  do {
    place = outbox.reserve(channel, header, coder, coder.cut(), step.sink, now, apart);
    if (place.bytes.empty()) return 0;
    count = std::min(count, place.elements);
    encoded =
        contributes ? coder.encode(data, count, from, place.bytes) : coder.represent(data, count, from, place.bytes);
  } while (encoded.floats == 0 && outbox.begin_next(channel, now));
  if (encoded.floats == 0) return 0;
  elements_left_ -= std::min(elements_left_, encoded.floats);
  if (step.phase == Phase::kGather && it.task.stage != 0 && !last_stage(it) && data != private_.data()) {
    store_result(it, coder, block, first, place.bytes.first(encoded.bytes), encoded.floats);
  } else if (step.store) {
    (void)coder.decode(place.bytes.first(encoded.bytes), data, encoded.floats);
  }
  const size_t bytes = outbox.commit(channel, place, header, coder, encoded.floats, encoded.bytes);
  count_sent(it, step.phase, block, step.link, bytes, encoded.floats);
  if (began != 0) trace_time(it, &TraceOperation::encode, began);
  // Offering more than fits costs time, offering less needs another join.
  const size_t fits = encoded.floats == it.offer ? 2 * it.offer : encoded.floats + encoded.floats / 8;
  if (encoded.floats == it.offer || encoded.floats < count) it.offer = whole_cuts(it, fits);
  return encoded.floats;
}

// In a world of one the contribution is the result, rounded as a contribution is.
bool ExchangeState::round_own(Running& it, size_t block_count) noexcept {
  if (it.task.kind == OpKind::kAllToAll) {
    it.own_sent += copy_own(it, it.own_block, it.own_sent);
    return it.own_sent == block_count;
  }
  for (size_t round = 0; round < kRoundsPerPoll && it.own_sent < block_count; ++round) {
    uint8_t* const data = elements(it, it.own_block, it.own_sent);
    const size_t count = std::min(block_count - it.own_sent, std::max(it.coder.granule() * 16, it.coder.cut()));
    const Origin from = origin(it, it.own_block, it.own_sent, contributes(it));
    const EncodeResult encoded = contributes(it) ? it.coder.encode(data, count, from, scratch_)
                                                 : it.coder.represent(data, count, from, scratch_);
    (void)it.coder.decode(std::span(scratch_).first(encoded.bytes), data, encoded.floats);
    if (contributes(it) && (it.coder.selects() || !it.operation.codec->row().adds))
      own_result(it, data, encoded.floats);
    complete(it, it.own_block, it.own_sent, encoded.floats);
    it.own_sent += encoded.floats;
  }
  const bool done = it.own_sent == block_count;
  more_ |= !done;
  return done;
}

// What an owner, or the last one to add, makes of a sum.
void ExchangeState::own_result(Running& it, uint8_t* sums, size_t count) noexcept {
  const Origin from = origin(it, it.own_block, it.own_sent, false);
  it.coder.finish(sums, count, from.position);
  const EncodeResult encoded = it.back.represent(sums, count, from, scratch_);
  (void)it.back.decode(std::span(scratch_).first(encoded.bytes), sums, encoded.floats);
}

// ---- Open packets.

// A packet that is not full waits for what will arrive for it and for own elements (`more`), unless no other is on its
// way, and never for long.
void ExchangeState::flush(size_t link, bool more, Nanos now) noexcept {
  Outbox& outbox = outboxes_[link];
  if (outbox.idle()) return;
  outbox.flush(Outbox::kControl, now);
  for (const auto channel : Outbox::kData) {
    if (!outbox.holds(channel)) continue;
    const bool waits = !outbox.full(channel) && links_[link].in_flight() != 0 && (more || coming_[channel] != 0);
    if (!waits || now >= flush_at(link, channel)) outbox.flush(channel, now);
  }
}

// When an open packet has waited long enough; kNever if there is none. Of the sums that arrive, one in so many as it
// has blocks ends here, so results come that much more slowly.
Nanos ExchangeState::flush_at(size_t link, Outbox::Channel channel) const noexcept {
  const Nanos since = outboxes_[link].held_since(channel);
  if (since == kNever) return kNever;
  const RttEstimator& rtt = links_[link].rtt();
  const Nanos hold = rtt.known() ? std::min(config_.max_hold, rtt.smoothed() / 4) : config_.max_hold;
  return since + (channel == Outbox::kResults ? hold * blocks_ : hold);
}

}  // namespace gradlane
