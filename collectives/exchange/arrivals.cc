// arrivals.cc - what happens to a packet that comes in: checked, then merged, stored, relayed (packet path)
#include <algorithm>
#include <optional>

#include "collectives/crc32c.h"
#include "collectives/descriptor.h"
#include "collectives/exchange/exchange_state.h"

namespace gradlane {
namespace {

constexpr int32_t kFarBack = 1 << 30;  // operations; further back than any number that can still be under way

}  // namespace

bool ExchangeState::receive(unsigned from, Packet packet, size_t bytes, Nanos now) noexcept {
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

std::optional<Counter> ExchangeState::check_runs(std::span<const uint8_t> bytes, size_t link) noexcept {
  run_count_ = 0;
  while (!bytes.empty()) {
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
  if (!inside || (count % granule != 0 && first + count != elements)) return Counter::kBadBounds;
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
  if (!it.turns.has_place(turn_of(it, links_[link].peer()), first, run.header.count)) return false;
  for (const Run* other = runs_.data(); other != &run; ++other) {
    if (other->operation != &it || !other->step.in_turn) continue;
    const size_t begin = other->header.first * it.coder.granule();
    if (begin < end && first < begin + other->header.count) return false;
  }
  return true;
}

std::optional<Counter> ExchangeState::check_control(const Run& run, size_t link) noexcept {
  const size_t bytes = run.header.bytes;
  switch (run.header.phase) {
    case Phase::kStart:
      if (bytes != kRingDescriptor && bytes != sizeof(Descriptor)) return Counter::kBadRun;
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
  if (!it.strategy->has_owners() || delivers(it.task.kind) || block >= it.blocks.blocks()) return Counter::kBadRoute;
  return it.strategy->owner(it.task, block) == links_[link].peer() ? std::nullopt : std::optional(Counter::kBadRoute);
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
  end_if_done(it);
}

// A partial sum: adds the local elements, in one pass to the next packet if there is one to write to.
void ExchangeState::take_sum(const Run& run, Nanos now) noexcept {
  Running& it = *run.operation;
  it.others_sent += (run.header.first * it.coder.granule() + run.header.count) / 16;
  it.others_sent -= it.others_sent / 16;
  const size_t passed = pass_on(run, now);
  if (passed == run.header.count) {
    counters_.add(Counter::kRunsMerged);
    return;
  }
  counters_.add(run.step.send ? Counter::kRunsAbsorbed : Counter::kRunsStored);
  absorb(run, passed);
}

size_t ExchangeState::pass_on(const Run& run, Nanos now) noexcept {
  const Running& it = *run.operation;
  const Step& step = run.step;
  const size_t granule = it.coder.granule();
  const size_t begin = run.header.first * granule;
  const size_t count = run.header.count;
  size_t done = 0;
  if (!step.send || !peer_takes(it, step)) return done;
  Outbox& outbox = outboxes_[step.link];
  const Outbox::Channel channel = channel_of(step);
  const uint8_t* const local = elements(it, run.header.block, begin);
  while (done < count) {
    const RunHeader header = run_header(it, it.coder, step.phase, run.header.block, begin + done);
    const Outbox::Place place = outbox.reserve(channel, header, granule, count - done, step.sink, now);
    if (place.bytes.empty()) break;
    const HopResult hop =
        it.coder.hop(run.payload, local, count, residuals(it, run.header.block, begin), place.bytes, done);
    if (hop.status != Status::kOk || hop.floats == 0) break;
    if (step.store) {
      // decode(encode(sum)) is the result for this rank too. The local elements are used up.
      (void)it.coder.decode(place.bytes.first(hop.bytes), elements(it, run.header.block, begin + done), hop.floats);
      complete(it, run.header.block, begin + done, hop.floats);
    }
    outbox.commit(channel, place, header, it.coder, hop.floats, hop.bytes);
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
  float* const residual = residuals(it, run.header.block, begin);
  const size_t mark_first = (begin + done) / granule;
  const size_t mark_end = (begin + count + granule - 1) / granule;
  while (done < count) {
    const HopResult hop = it.coder.hop(run.payload, local, count, residual, scratch_, done);
    if (hop.status != Status::kOk || hop.floats == 0) return;  // not for a block that was valid
    (void)it.coder.decode(std::span(scratch_).first(hop.bytes), elements(it, run.header.block, begin + done),
                          hop.floats);
    if (!run.step.send) complete(it, run.header.block, begin + done, hop.floats);
    done += hop.floats;
  }
  if (!run.step.send) return;
  Deferred& deferred = run.step.phase == Phase::kReduce ? it.partial : it.result;
  deferred.mark(run.header.block, mark_first, mark_end - mark_first);
}

void ExchangeState::take_result(const Run& run, bool relayed, Nanos now) noexcept {
  Running& it = *run.operation;
  const size_t granule = it.coder.granule();
  const size_t begin = run.header.first * granule;
  const size_t count = run.header.count;
  (void)it.back.decode(run.payload, elements(it, run.header.block, begin), count);
  if (relayed) {
    counters_.add(Counter::kRunsRelayed);
  } else if (!run.step.send) {
    counters_.add(Counter::kRunsStored);
  } else if (copy(run, now)) {
    counters_.add(Counter::kRunsRelayed);
  } else {
    counters_.add(Counter::kRunsAbsorbed);
    it.result.mark(run.header.block, run.header.first, (count + granule - 1) / granule);
    return;
  }
  complete(it, run.header.block, begin, count);
}

// Passes a run on inside another packet, where its own cannot go on whole.
bool ExchangeState::copy(const Run& run, Nanos now) noexcept {
  const Running& it = *run.operation;
  if (!peer_takes(it, run.step)) return false;
  const size_t granule = it.coder.granule();
  const RunHeader header = run_header(it, it.coder, run.step.phase, run.header.block, run.header.first * granule);
  Outbox& outbox = outboxes_[run.step.link];
  const Outbox::Place place = outbox.reserve(Outbox::kPassing, header, granule, run.header.count, run.step.sink, now);
  if (place.bytes.size() < run.payload.size()) return false;
  std::copy(run.payload.begin(), run.payload.end(), place.bytes.begin());
  outbox.commit(Outbox::kPassing, place, header, it.coder, run.header.count, run.payload.size());
  return true;
}

void ExchangeState::take_abort(const Run& run) noexcept {
  Running& it = at(run.header.operation);
  if (it.state != Running::State::kRunning || it.number != run.header.operation) return;
  const auto notice = load<AbortNotice>(run.payload.data());
  const auto code = std::min(static_cast<FailureCode>(notice.code), FailureCode::kDoubled);
  const auto field = static_cast<Field>(notice.field);
  const bool of_strategy = field == Field::kStrategy || field == Field::kBackCodec;
  fail_everywhere(it,
                  {.code = code == FailureCode::kNone ? FailureCode::kAborted : code,
                   .rank = notice.rank,
                   .field = of_strategy ? field : std::min(field, Field::kTag),
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
    if (announced.valid && announced.number == number) stage = std::max(stage, announced.stage);
    announced = {number, true, stage, theirs};
  }
  if (static_cast<int32_t>(static_cast<uint32_t>(started_) - number) <= 0) return;  // compared when it starts
  Running& it = at(number);
  if (it.state == Running::State::kRunning && it.number == number) compare(it, link, theirs);
}

void ExchangeState::compare(Running& it, size_t link, const Descriptor& theirs) noexcept {
  const Failure failure = mismatch(it.descriptor, theirs, static_cast<uint16_t>(links_[link].peer()));
  if (failure) fail_everywhere(it, failure, config_.rank);
}

}  // namespace gradlane
