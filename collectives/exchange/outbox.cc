// outbox.cc - filling packets with runs (packet path)
#include "collectives/exchange/outbox.h"

#include <algorithm>
#include <cstring>

#include "collectives/crc32c.h"

namespace gradlane {
namespace {

// A granule always fits into kLongestGroup bytes, whatever its elements and their codec are.
static_assert(kGranuleBytes == kGroupFloats * sizeof(float) && kGranuleBytes <= kLongestGroup);

// A run header can count the elements of any packet. The longest run is a multiple of the granule of every type.
static_assert(kMaxRunElements <= UINT16_MAX && kMaxRunElements % kGranuleBytes == 0);

}  // namespace

void Outbox::reset() noexcept {
  for (Open& open : open_) {
    if (open.packet) io_.release(open.packet);
    open = Open{};
  }
  held_ = 0;
  starved_ = false;
}

bool Outbox::begin(Channel channel, unsigned sink, Nanos now) noexcept {
  Open& open = open_[channel];
  if (!open.packet) open.packet = io_.allocate();
  if (!open.packet) {
    starved_ = true;
    counters_.add(Counter::kNoBuffer);
    return false;
  }
  open.bytes = sizeof(LinkHeader);
  open.last = 0;
  open.elements = 0;
  open.sink = sink;
  open.since = now;
  return true;
}

// Returns whether a run continues the last one: it has the next elements of the same block.
bool Outbox::goes_on(const Open& open, const RunHeader& run, const Coder& coder) noexcept {
  const RunHeader& last = open.run;
  return open.last != 0 && last.operation == run.operation && last.block == run.block && last.phase == run.phase &&
         last.count % coder.cut() == 0 && last.first + last.count / coder.granule() == run.first;
}

Outbox::Place Outbox::reserve(Channel channel, const RunHeader& run, const Coder& coder, size_t elements, unsigned sink,
                              Nanos now, bool begins_run) noexcept {
  Open& open = open_[channel];
  for (;;) {
    if (!holds(channel) && !begin(channel, sink, now)) return {};
    const bool joins = !begins_run && goes_on(open, run, coder);
    const size_t header = joins ? 0 : sizeof(RunHeader);
    const bool fits = open.bytes + header + coder.least_room() <= mtu_ && open.elements + elements <= kMaxRunElements;
    if (open.last == 0 || (fits && open.sink == sink)) {
      open.sink = sink;
      const size_t begin = open.bytes + header;
      const size_t left = (kMaxRunElements - open.elements) / coder.cut() * coder.cut();
      return {{open.packet.data + begin, mtu_ - begin}, left, joins};
    }
    flush(channel, now);
    if (holds(channel)) return {};
  }
}

bool Outbox::begin_next(Channel channel, Nanos now) noexcept {
  if (!holds(channel)) return false;
  flush(channel, now);
  return !holds(channel);
}

size_t Outbox::commit(Channel channel, const Place& place, RunHeader run, const Coder& coder, size_t elements,
                      size_t bytes) noexcept {
  Open& open = open_[channel];
  const size_t before = open.bytes;
  if (place.joins) {
    const size_t joined = coder.join(open.packet.data + open.last + sizeof(RunHeader), {open.run.count, open.run.bytes},
                                     {elements, bytes});
    bytes = joined - open.run.bytes;
    open.run.count = static_cast<uint16_t>(open.run.count + elements);
    open.run.bytes = static_cast<uint16_t>(joined);
  } else {
    run.count = static_cast<uint16_t>(elements);
    run.bytes = static_cast<uint16_t>(bytes);
    if (open.last == 0) ++held_;
    open.last = open.bytes;
    open.run = run;
    open.bytes += sizeof(RunHeader);
  }
  open.bytes += bytes;
  open.elements += elements;
  store(open.packet.data + open.last, open.run);
  return open.bytes - before;
}

bool Outbox::control(RunHeader run, std::span<const uint8_t> payload, Nanos now) noexcept {
  Open& open = open_[kControl];
  if (holds(kControl) && open.bytes + sizeof(RunHeader) + payload.size() > mtu_) flush(kControl, now);
  if (holds(kControl) && open.bytes + sizeof(RunHeader) + payload.size() > mtu_) return false;
  if (!holds(kControl) && !begin(kControl, 0, now)) return false;
  run.bytes = static_cast<uint16_t>(payload.size());
  store(open.packet.data + open.bytes, run);
  std::copy(payload.begin(), payload.end(), open.packet.data + open.bytes + sizeof(RunHeader));
  if (open.last == 0) ++held_;
  open.last = open.bytes;
  open.bytes += sizeof(RunHeader) + payload.size();
  return true;
}

void Outbox::fill_up(Open& open) const noexcept {
  std::memset(open.packet.data + open.bytes, 0, mtu_ - open.bytes);
  if (mtu_ - open.bytes >= sizeof(RunHeader)) {
    RunHeader padding{};
    padding.phase = Phase::kPadding;
    store(open.packet.data + open.bytes, padding);
  }
  open.bytes = mtu_;
}

void Outbox::flush(Channel channel, Nanos now) noexcept {
  Open& open = open_[channel];
  if (open.last == 0 || !out_.takes(channel == kControl)) return;
  if (open.bytes >= pad_from_ && channel != kControl) fill_up(open);
  const uint8_t* const runs = open.packet.data + sizeof(LinkHeader);
  const uint32_t crc = crc_ ? crc32c(kCrcStart, runs, open.bytes - sizeof(LinkHeader)) : kCrcStart;
  if (channel == kSums) {
    counters_.add(Counter::kReducePackets);
    counters_.add(Counter::kReduceBytes, open.bytes);
  } else if (channel != kControl) {
    counters_.add(Counter::kGatherPackets);
    counters_.add(Counter::kGatherBytes, open.bytes);
  }
  out_.take(open.packet, open.bytes, crc, now);
  open = Open{};
  --held_;
}

}  // namespace gradlane
