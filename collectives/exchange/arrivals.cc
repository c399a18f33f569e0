// arrivals.cc - what happens to a packet that comes in: checked, then merged, stored, relayed (packet path)
#include <algorithm>
#include <cstring>
#include <optional>

#include "collectives/crc32c.h"
#include "collectives/exchange/exchange_state.h"

namespace gradlane {
bool ExchangeState::receive(unsigned from, Packet packet, size_t bytes, Nanos now) noexcept {
  seen_at_ = now;
  const auto place = topology_.link_to(from);
  const auto drop = [this](Counter counter) {
    counters_.add(counter);
    return false;
  };
  if (!place) return drop(Counter::kUnknownPeer);
  if (bytes < sizeof(LinkHeader) || bytes > config_.mtu) return drop(Counter::kTooShort);
  const auto header = load<LinkHeader>(packet.data);
  if (header.magic != kMagic) return drop(Counter::kBadMagic);
  // The payload comes first in the CRC: what a relayed packet carries on is computed once.
  const std::span<const uint8_t> payload{packet.data + sizeof(LinkHeader), bytes - sizeof(LinkHeader)};
  const uint32_t payload_crc = crc32c(kCrcStart, payload.data(), payload.size());
  if (header.crc != ~crc32c(payload_crc, load<HeaderWords>(packet.data))) return drop(Counter::kBadCrc);

  const size_t link = *place;
  if (header.version != kProtocolVersion) {
    membership_.refuse_version(link, header.version);
    return drop(Counter::kBadVersion);
  }
  if (header.kind == PacketKind::kHello) {
    handle(membership_.receive(link, header, payload, now));
    return false;
  }
  if (header.kind != PacketKind::kAck && header.kind != PacketKind::kData) return drop(Counter::kBadKind);
  if (header.session != membership_.session()) return drop(Counter::kStaleSession);
  if (header.kind == PacketKind::kData) return receive_data(link, header, packet, bytes, payload_crc, now);
  if (links_[link].up()) links_[link].acknowledge(header, now);
  return drop(Counter::kAckReceived);
}

bool ExchangeState::receive_data(size_t link, const LinkHeader& header, Packet packet, size_t bytes,
                                 uint32_t payload_crc, Nanos now) noexcept {
  Link& from = links_[link];
  // A packet for an earlier life of this rank, perhaps. (Whoever sends any has said hello before.)
  if (!from.up() || !membership_.knows_us(link)) {
    counters_.add(Counter::kStaleSession);
    return false;
  }
  from.acknowledge(header, now);
  switch (from.classify(header.sequence)) {
    case ReceiveWindow::Place::kNew:
      break;
    case ReceiveWindow::Place::kDuplicate:
      from.repeat(header.sequence);
      counters_.add(Counter::kDuplicate);
      return false;
    case ReceiveWindow::Place::kTooFar:
      counters_.add(Counter::kTooFar);
      return false;
  }
  if (const auto fault = check_runs({packet.data + sizeof(LinkHeader), bytes - sizeof(LinkHeader)}, link)) {
    counters_.add(*fault);
    return false;
  }
  from.accept(header);
  counters_.add(Counter::kDelivered);
  const bool relayed = relay(packet, bytes, payload_crc, now);
  for (size_t i = 0; i < run_count_; ++i) take(runs_[i], link, relayed, now);
  return relayed;
}

// ---- Checking: all of a packet, before any of it counts.

// What is behind the last run.
bool ExchangeState::is_padding(std::span<const uint8_t> bytes) noexcept {
  if (bytes.size() >= sizeof(RunHeader)) return load<RunHeader>(bytes.data()).phase == Phase::kPadding;
  return std::ranges::all_of(bytes, [](uint8_t byte) { return byte == 0; });
}

std::optional<Counter> ExchangeState::check_runs(std::span<const uint8_t> bytes, size_t link) noexcept {
  run_count_ = 0;
  while (!bytes.empty()) {
    if (run_count_ != 0 && is_padding(bytes)) return std::nullopt;
    if (bytes.size() < sizeof(RunHeader)) return Counter::kBadRun;
    Run& run = runs_[run_count_++];
    run.header = load<RunHeader>(bytes.data());
    bytes = bytes.subspan(sizeof(RunHeader));
    if (run.header.bytes > bytes.size()) return Counter::kBadRun;
    run.payload = bytes.first(run.header.bytes);
    bytes = bytes.subspan(run.header.bytes);
    run.operation = nullptr;
    run.step = {};
    if (const auto fault = check_run(run, link)) return fault;
  }
  return std::nullopt;
}

std::optional<Counter> ExchangeState::check_run(Run& run, size_t link) noexcept {
  const RunHeader& header = run.header;
  if (header.phase == Phase::kStart || header.phase == Phase::kAbort || header.phase == Phase::kGrant) {
    return check_control(run, link);
  }
  if (header.phase != Phase::kReduce && header.phase != Phase::kGather) return Counter::kBadRoute;
  if (static_cast<int32_t>(static_cast<uint32_t>(started_) - header.operation) <= 0) return Counter::kNotStarted;
  Running& it = at(header.operation);
  if (it.state != Running::State::kRunning || it.number != header.operation) return std::nullopt;  // over
  if (!it.ready) return Counter::kNotStarted;
  if (header.digest != it.digest) return Counter::kBadDigest;
  const Coder& coder = header.phase == Phase::kGather ? it.back : it.coder;
  if (header.codec != static_cast<uint8_t>(coder.codec_id()) || header.param != coder.codec_param()) {
    return Counter::kBadCodec;
  }
  if (header.block >= it.blocks.blocks()) return Counter::kBadBounds;
  run.step = it.strategy->arrival(it.task, header.phase, header.block, link);
  if (!run.step.expected) return Counter::kBadRoute;
  const size_t granule = it.coder.granule();
  const size_t elements = it.blocks.count(header.block);
  const size_t first = header.first * granule;
  const size_t count = header.count;
  const bool inside = count != 0 && count <= kMaxRunElements && first < elements && count <= elements - first;
  const bool cut = first % coder.cut() == 0 && (count % coder.cut() == 0 || first + count == elements);
  if (!inside || !cut) return Counter::kBadBounds;
  run.operation = &it;
  if (!(run.step.in_turn ? has_room(run, link) : is_awaited(run, link))) return Counter::kBadBounds;
  return coder.validate(run.payload, count) == Status::kOk ? std::nullopt : std::optional(Counter::kBadBlock);
}

// No more elements than are still to come, with the earlier runs of the packet.
bool ExchangeState::is_awaited(const Run& run, size_t link) const noexcept {
  const Running& it = *run.operation;
  const RunHeader& header = run.header;
  size_t left = header.phase == Phase::kReduce ? it.sums_left : it.results_left;
  if (delivers(it.task.kind)) left = it.due[links_[link].peer()];
  for (const Run* other = runs_.data(); other != &run; ++other) {
    if (other->operation == &it && other->header.phase == header.phase) left -= other->header.count;
  }
  return header.count <= left;
}

// Of a contribution to a block of this rank's.
bool ExchangeState::has_room(const Run& run, size_t link) const noexcept {
  const Running& it = *run.operation;
  const size_t first = run.header.first * it.coder.granule();
  const size_t end = first + run.header.count;
  if (!it.room->turns.has_place(turn_of(it, links_[link].peer()), first, run.header.count)) return false;
  for (const Run* other = runs_.data(); other != &run; ++other) {
    if (other->operation != &it || !other->step.in_turn) continue;
    const size_t begin = other->header.first * it.coder.granule();
    if (begin < end && first < begin + other->header.count) return false;
  }
  return true;
}

// ---- Taking.

// A packet of nothing but results that all go on together goes on as it is, in its own buffer.
bool ExchangeState::relay(Packet packet, size_t bytes, uint32_t payload_crc, Nanos now) noexcept {
  const Run* going = nullptr;
  for (const Run& run : std::span(runs_.data(), run_count_)) {
    if (run.header.phase != Phase::kGather) return false;
    if (run.operation == nullptr || !run.step.send || !peer_takes(*run.operation, run.step)) return false;
    if (going != nullptr && (going->step.link != run.step.link || going->step.sink != run.step.sink)) return false;
    going = &run;
  }
  if (going == nullptr || !links_[going->step.link].can_relay()) return false;
  counters_.add(Counter::kGatherPackets);
  counters_.add(Counter::kGatherBytes, bytes);
  for (const Run& run : std::span(runs_.data(), run_count_)) {
    count_sent(*run.operation, Phase::kGather, run.header.block, run.step.link, sizeof(RunHeader) + run.header.bytes,
               run.header.count);
  }
  // Its bytes are still read below: sending rewrites the link header only.
  links_[going->step.link].send(packet, bytes, payload_crc, now);
  return true;
}

void ExchangeState::take(const Run& run, size_t link, bool relayed, Nanos now) noexcept {
  if (run.header.phase == Phase::kStart) {
    take_start(link, run);
    return;
  }
  if (run.header.phase == Phase::kAbort) {
    take_abort(run);
    return;
  }
  if (run.header.phase == Phase::kGrant) {
    take_grant(run);
    return;
  }
  // Over, perhaps since the run before this one.
  if (run.operation == nullptr || run.operation->state != Running::State::kRunning) {
    counters_.add(Counter::kRunsDiscarded);
    return;
  }
  Running& it = *run.operation;
  const Nanos began = trace_ == nullptr ? 0 : trace_begins();
  if (run.step.in_turn) {
    take_contribution(run, link);
  } else if (delivers(it.task.kind)) {
    take_delivery(run, link);
  } else if (run.step.merge) {
    it.sums_left -= run.header.count;
    if (run.step.send) {
      it.coming[channel_of(run.step)] -= run.header.count;
      coming_[channel_of(run.step)] -= run.header.count;
    }
    take_sum(run, now);
  } else {
    it.results_left -= run.header.count;
    take_result(run, relayed, now);
  }
  if (trace_ != nullptr) [[unlikely]] {
    trace_in(run, link, began);
  }
  end_if_done(it);
}

// A partial sum: adds the local elements, in one pass to the next packet if there is one to write to.
void ExchangeState::take_sum(const Run& run, Nanos now) noexcept {
  Running& it = *run.operation;
  it.others_sent += (run.header.first * it.coder.granule() + run.header.count) / 16;
  it.others_sent -= it.others_sent / 16;
  // Where the codec selects, what is in the tensor now is no contribution.
  if (!contributes(it) && it.coder.selects()) {
    counters_.add(Counter::kRunsAbsorbed);
    add_sum(run);
    return;
  }
  const size_t passed = pass_on(run, now);
  if (passed == run.header.count) {
    counters_.add(Counter::kRunsMerged);
    return;
  }
  counters_.add(run.step.send ? Counter::kRunsAbsorbed : Counter::kRunsStored);
  absorb(run, passed);
}

size_t ExchangeState::pass_on(const Run& run, Nanos now) noexcept {
  Running& it = *run.operation;
  const Step& step = run.step;
  const size_t granule = it.coder.granule();
  const size_t begin = run.header.first * granule;
  const size_t count = run.header.count;
  size_t done = 0;
  if (!step.send || !peer_takes(it, step)) return done;
  if (step.store && it.coder.finishes()) return done;  // a sum is not the result yet
  Outbox& outbox = outboxes_[step.link];
  const Outbox::Channel channel = channel_of(step);
  const uint8_t* const local = elements(it, run.header.block, begin);
  const Origin from = origin(it, run.header.block, begin, contributes(it));
  while (done < count) {
    const RunHeader header = run_header(it, it.coder, step.phase, run.header.block, begin + done);
    const Outbox::Place place = outbox.reserve(channel, header, it.coder, count - done, step.sink, now);
    if (place.bytes.empty()) break;
    const HopResult hop = it.coder.hop(run.payload, local, count, from, place.bytes, done);
    if (hop.status == Status::kOk && hop.floats == 0 && outbox.begin_next(channel, now)) continue;
    if (hop.status != Status::kOk || hop.floats == 0) break;
    if (step.store) {
      // decode(encode(sum)) is the result for this rank too. The local elements are used up.
      store_result(it, it.coder, run.header.block, begin + done, place.bytes.first(hop.bytes), hop.floats);
      complete(it, run.header.block, begin + done, hop.floats);
    }
    const size_t bytes = outbox.commit(channel, place, header, it.coder, hop.floats, hop.bytes);
    count_sent(it, step.phase, run.header.block, step.link, bytes, hop.floats);
    done += hop.floats;
  }
  return done;
}

// The same with the tensor as destination: the sums are sent from there, later. They are decode(encode()) of something,
// which encodes to the same bytes again.
void ExchangeState::absorb(const Run& run, size_t done) noexcept {
  Running& it = *run.operation;
  const size_t granule = it.coder.granule();
  const size_t begin = run.header.first * granule;
  const size_t count = run.header.count;
  const uint8_t* const local = elements(it, run.header.block, begin);
  const Origin from = origin(it, run.header.block, begin, contributes(it));
  const bool finished = run.step.store && sums_end(it);
  const size_t mark_first = (begin + done) / granule;
  const size_t mark_end = (begin + count + granule - 1) / granule;
  while (done < count) {
    const HopResult hop = it.coder.hop(run.payload, local, count, from, scratch_, done);
    if (hop.status != Status::kOk || hop.floats == 0) return;  // not for a block that was valid
    uint8_t* const sums = elements(it, run.header.block, begin + done);
    (void)it.coder.decode(std::span(scratch_).first(hop.bytes), sums, hop.floats);
    if (finished) it.coder.finish(sums, hop.floats, from.position + done);
    if (!run.step.send) complete(it, run.header.block, begin + done, hop.floats);
    done += hop.floats;
  }
  if (!run.step.send) return;
  Deferred& deferred = run.step.phase == Phase::kReduce ? it.room->partial : it.room->result;
  deferred.mark(run.header.block, mark_first, mark_end - mark_first);
}

// The same where this rank's part is a sum itself: it stays one.
void ExchangeState::add_sum(const Run& run) noexcept {
  Running& it = *run.operation;
  const size_t granule = it.coder.granule();
  const size_t begin = run.header.first * granule;
  const size_t count = run.header.count;
  uint8_t* const sums = elements(it, run.header.block, begin);
  (void)it.coder.add(run.payload, sums, count);
  if (run.step.store && sums_end(it)) it.coder.finish(sums, count, origin(it, run.header.block, begin, false).position);
  if (!run.step.send) {
    complete(it, run.header.block, begin, count);
    return;
  }
  Deferred& deferred = run.step.phase == Phase::kReduce ? it.room->partial : it.room->result;
  deferred.mark(run.header.block, run.header.first, (count + granule - 1) / granule);
}

void ExchangeState::take_result(const Run& run, bool relayed, Nanos now) noexcept {
  Running& it = *run.operation;
  const bool copied = !relayed && run.step.send && copy(run, now);
  if (run.step.send && !relayed && !copied) {
    counters_.add(Counter::kRunsAbsorbed);
    defer_result(run);
    return;
  }
  counters_.add(run.step.send ? Counter::kRunsRelayed : Counter::kRunsStored);
  const size_t begin = run.header.first * it.coder.granule();
  if (it.task.stage == 0) {  // a call of store_result() costs 5 % of a packet
    (void)it.back.decode(run.payload, elements(it, run.header.block, begin), run.header.count);
  } else {
    store_result(it, it.back, run.header.block, begin, run.payload, run.header.count);
  }
  complete(it, run.header.block, begin, run.header.count);
}

// Decodes a result into the tensor. With digests, if it will be sent from there in the next stage.
void ExchangeState::store_result(Running& it, const Coder& coder, unsigned block, size_t first,
                                 std::span<const uint8_t> encoded, size_t count) noexcept {
  if (it.task.stage == 0 || last_stage(it)) {
    (void)coder.decode(encoded, elements(it, block, first), count);
  } else {
    store_with_digests(it, coder, block, first, encoded, count);
  }
}

// A result that the link has no room for goes on from the tensor, later.
void ExchangeState::defer_result(const Run& run) noexcept {
  Running& it = *run.operation;
  const size_t granule = it.coder.granule();
  store_with_digests(it, it.back, run.header.block, run.header.first * granule, run.payload, run.header.count);
  it.room->result.mark(run.header.block, run.header.first, (run.header.count + granule - 1) / granule);
}

// The trainer can write to the tensor at any time. What other ranks will get from there has digests, made of a copy
// that it cannot write to; read_result() compares them.
void ExchangeState::store_with_digests(Running& it, const Coder& coder, unsigned block, size_t first,
                                       std::span<const uint8_t> encoded, size_t count) noexcept {
  const size_t bytes = count * it.coder.element_bytes();
  (void)coder.decode(encoded, private_.data(), count);
  std::memcpy(elements(it, block, first), private_.data(), bytes);
  uint32_t* digest = digests(it, block, first);
  for (size_t at = 0; at < bytes; at += kGranuleBytes) {
    *digest++ = crc32c(kCrcStart, private_.data() + at, std::min(kGranuleBytes, bytes - at));
  }
}

// Passes a run on inside another packet, where its own cannot go on whole.
bool ExchangeState::copy(const Run& run, Nanos now) noexcept {
  Running& it = *run.operation;
  if (!peer_takes(it, run.step)) return false;
  const size_t granule = it.coder.granule();
  const RunHeader header = run_header(it, it.back, run.step.phase, run.header.block, run.header.first * granule);
  Outbox& outbox = outboxes_[run.step.link];
  const Outbox::Place place = outbox.reserve(Outbox::kPassing, header, it.back, run.header.count, run.step.sink, now);
  if (place.bytes.size() < run.payload.size()) return false;
  std::copy(run.payload.begin(), run.payload.end(), place.bytes.begin());
  const size_t bytes = outbox.commit(Outbox::kPassing, place, header, it.back, run.header.count, run.payload.size());
  count_sent(it, run.step.phase, run.header.block, run.step.link, bytes, run.header.count);
  return true;
}

}  // namespace gradlane
