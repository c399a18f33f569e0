// arrivals.cc - the handling of received packets: checks, then merging, storing or relaying (packet path)
#include <algorithm>
#include <optional>

#include "collectives/crc32c.h"
#include "collectives/exchange/exchange_state.h"

namespace gradlane {
bool ExchangeState::receive(unsigned from, Packet packet, size_t bytes, Nanos now) noexcept {
  lifecycle_.set_time(now);
  const auto place = topology_.link_to(from);
  const auto drop = [this](Counter counter) {
    counters_.add(counter);
    return false;
  };
  if (!place) return drop(Counter::kUnknownPeer);
  if (bytes < sizeof(LinkHeader) || bytes > config_.mtu) {
    const uint32_t first = bytes == kReportBytes ? load<uint32_t>(packet.data) : 0;
    if ((first & 0xffffff & ~kSegmentsOverdue) != kMissingSegments) return drop(Counter::kTooShort);
    if (packet.data[3] != (membership_.session() & 0xff)) return drop(Counter::kStaleSession);
    egress_.link(*place).send_missing({.sequence = load<uint32_t>(packet.data + kReportSequence),
                                       .arrived = load<uint64_t>(packet.data + kSegmentHeader),
                                       .overdue = (first & kSegmentsOverdue) != 0},
                                      now);
    return false;
  }
  const auto header = load<LinkHeader>(packet.data);
  if (header.magic != kMagic) return drop(Counter::kBadMagic);
  // The CRC covers the payload first. So its part is computed once, and is used again if the packet is relayed.
  const std::span<const uint8_t> payload{packet.data + sizeof(LinkHeader), bytes - sizeof(LinkHeader)};
  const bool covered = config_.crc_of_data || header.kind != PacketKind::kData;
  const uint32_t payload_crc = covered ? crc32c(kCrcStart, payload.data(), payload.size()) : kCrcStart;
  if (header.crc != ~crc32c(payload_crc, load<HeaderWords>(packet.data))) return drop(Counter::kBadCrc);

  const size_t link = *place;
  if (header.version != kProtocolVersion) {
    membership_.refuse_version(link, header.version);
    return drop(Counter::kBadVersion);
  }
  if (header.kind == PacketKind::kHello) {
    lifecycle_.handle(membership_.receive(link, header, payload, now));
    return false;
  }
  if (header.kind != PacketKind::kAck && header.kind != PacketKind::kData) return drop(Counter::kBadKind);
  if (header.session != membership_.session()) return drop(Counter::kStaleSession);
  if (header.kind == PacketKind::kData) return receive_data(link, header, packet, bytes, payload_crc, now);
  if (egress_.link(link).up()) egress_.link(link).acknowledge(header, now);
  return drop(Counter::kAckReceived);
}

bool ExchangeState::receive_data(size_t link, const LinkHeader& header, Packet packet, size_t bytes,
                                 uint32_t payload_crc, Nanos now) noexcept {
  Link& from = egress_.link(link);
  // The packet may be for an earlier life of this rank. (A rank that sends data has sent a hello before.)
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
  resume_deferred(false, now);
  if (const auto fault = check_runs({packet.data + sizeof(LinkHeader), bytes - sizeof(LinkHeader)}, link)) {
    counters_.add(*fault);
    return false;
  }
  from.accept(header);
  counters_.add(Counter::kDelivered);
  if (const auto next = blocked_link(); next && !deferred_.full()) {
    deferred_.push({packet, bytes, payload_crc, link, *next});
    counters_.add(Counter::kDeferred);
    return true;
  }
  return take_runs(link, packet, bytes, payload_crc, now);
}

// ---- Packets that wait until the next link has space

// Returns the first full link that a run of the checked packet must be sent on; none if all have space.
std::optional<size_t> ExchangeState::blocked_link() noexcept {
  for (const Run& run : std::span(runs_.data(), run_count_)) {
    if (run.operation == nullptr || !run.step.send || !peers_.takes(*run.operation, run.step)) continue;
    const Link& next = egress_.link(run.step.link);
    if (!(run.header.phase == Phase::kGather ? next.can_relay() : next.can_pass())) return run.step.link;
  }
  return std::nullopt;
}

// Handles deferred packets, oldest first, until the next link of one is still full. Packets behind that one wait too,
// even if their own next link has space. `even_blocked`: handles all, so that their buffers become free. Packets are
// checked again, because their operations may have ended. Packets of an earlier session are released.
void ExchangeState::resume_deferred(bool even_blocked, Nanos now) noexcept {
  while (!deferred_.empty()) {
    const DeferredPackets::Item& first = deferred_.front();
    const bool current = load<LinkHeader>(first.packet.data).session == membership_.session();
    if (current && !even_blocked && !egress_.link(first.next_link).can_pass()) return;
    const DeferredPackets::Item it = deferred_.pop();
    const std::span<const uint8_t> payload{it.packet.data + sizeof(LinkHeader), it.bytes - sizeof(LinkHeader)};
    const bool taken = current && !check_runs(payload, it.from_link) &&
                       take_runs(it.from_link, it.packet, it.bytes, it.payload_crc, now);
    if (!taken) io_.release(it.packet);
  }
}

// Handles all runs of the checked packet. Returns whether it was relayed: then its buffer belongs to the next link.
bool ExchangeState::take_runs(size_t link, Packet packet, size_t bytes, uint32_t payload_crc, Nanos now) noexcept {
  const bool relayed = relay(packet, bytes, payload_crc, now);
  for (size_t i = 0; i < run_count_; ++i) take(runs_[i], link, relayed, now);
  return relayed;
}

// ---- Checking. All runs of a packet are checked before any of them has an effect.

namespace {

// Returns whether the bytes after the last run are padding.
bool is_padding(std::span<const uint8_t> bytes) noexcept {
  if (bytes.size() >= sizeof(RunHeader)) return load<RunHeader>(bytes.data()).phase == Phase::kPadding;
  return std::ranges::all_of(bytes, [](uint8_t byte) { return byte == 0; });
}

}  // namespace

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
  if (Control::is_control(header.phase)) return control_.check(run, link);
  if (header.phase != Phase::kReduce && header.phase != Phase::kGather) return Counter::kBadRoute;
  if (!table_.has_started(header.operation)) return Counter::kNotStarted;
  OperationState* const found = table_.running(header.operation);
  if (found == nullptr) return std::nullopt;  // the operation is over
  OperationState& it = *found;
  if (!it.prepared.ready) return Counter::kNotStarted;
  if (header.digest != it.digest) return Counter::kBadDigest;
  const Coder& coder = header.phase == Phase::kGather ? it.result_coder : it.coder;
  if (header.codec != static_cast<uint8_t>(coder.codec_id()) || header.param != coder.codec_param()) {
    return Counter::kBadCodec;
  }
  if (header.block >= it.blocks.blocks()) return Counter::kBadBounds;
  run.step = it.strategy->arrival(it.route, header.phase, header.block, link);
  if (!run.step.expected) return Counter::kBadRoute;
  const size_t elements = it.blocks.count(header.block);
  const size_t first = header.first * it.coder.granule();
  const size_t count = header.count;
  const bool inside = count != 0 && count <= kMaxRunElements && first < elements && count <= elements - first;
  const bool cut = first % coder.cut() == 0 && (count % coder.cut() == 0 || first + count == elements);
  if (!inside || !cut) return Counter::kBadBounds;
  run.operation = &it;
  const std::span before(runs_.data(), static_cast<size_t>(&run - runs_.data()));
  if (!it.algorithm->accepts(run, link, before)) return Counter::kBadBounds;
  return coder.validate(run.payload, count) == Status::kOk ? std::nullopt : std::optional(Counter::kBadBlock);
}

// ---- Taking.

// Sends a packet on unchanged, in its own buffer, if all its runs are results with the same next neighbour and the same
// last rank. Returns whether it did so.
bool ExchangeState::relay(Packet packet, size_t bytes, uint32_t payload_crc, Nanos now) noexcept {
  const std::span runs(runs_.data(), run_count_);
  const Run* going = nullptr;
  for (const Run& run : runs) {
    if (run.header.phase != Phase::kGather) return false;
    if (run.operation == nullptr || !run.step.send || !peers_.takes(*run.operation, run.step)) return false;
    if (going != nullptr && (going->step.link != run.step.link || going->step.sink != run.step.sink)) return false;
    going = &run;
  }
  if (going == nullptr || !egress_.link(going->step.link).can_relay()) return false;
  counters_.add(Counter::kGatherPackets);
  counters_.add(Counter::kGatherBytes, bytes);
  for (const Run& run : runs) {
    egress_.count_sent(*run.operation, Phase::kGather, run.header.block, run.step.link,
                       sizeof(RunHeader) + run.header.bytes, run.header.count);
  }
  // The runs are still read after this call, which rewrites only the link header of their packet.
  egress_.link(going->step.link).send(packet, bytes, payload_crc, now);
  return true;
}

void ExchangeState::take(const Run& run, size_t link, bool relayed, Nanos now) noexcept {
  if (Control::is_control(run.header.phase)) {
    control_.on_run(run, link);
    return;
  }
  // The operation is over. Perhaps the run before this one has ended it.
  if (run.operation == nullptr || run.operation->state != OperationState::State::kRunning) {
    counters_.add(Counter::kRunsDiscarded);
    return;
  }
  OperationState& it = *run.operation;
  const Nanos began = tracer_.begins();
  it.algorithm->on_run(run, link, relayed, now);
  if (tracer_.on()) [[unlikely]] {
    tracer_.received(it, run.header, run.step.in_turn, link);
    tracer_.time(it, run.header.phase == Phase::kReduce ? &TraceOperation::add : &TraceOperation::decode, began);
  }
  lifecycle_.end_if_done(it);
}

}  // namespace gradlane
