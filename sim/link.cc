// link.cc - the path of packets in a simulated network: bandwidth, delay, a drop-tail queue, and faults by seed
#include "sim/link.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace gradlane {

LinkStats& LinkStats::operator+=(const LinkStats& other) noexcept {
  packets += other.packets;
  bytes += other.bytes;
  wire_bytes += other.wire_bytes;
  delivered += other.delivered;
  busy += other.busy;
  filtered += other.filtered;
  queue_drops += other.queue_drops;
  lost += other.lost;
  blacked_out += other.blacked_out;
  duplicated += other.duplicated;
  reordered += other.reordered;
  corrupted += other.corrupted;
  return *this;
}

// ---- A path

void SimPath::set_faults(const Faults& faults) noexcept {
  faults_ = faults;
  chances_ = {.drop = faults.loss,
              .duplicate = faults.duplicate,
              .corrupt = faults.corrupt,
              .reorder = faults.reorder_delay > 0 ? faults.reorder : 0,
              .delay = 0};
  faulty_ = faults.loss > 0 || faults.duplicate > 0 || faults.reorder > 0 || faults.corrupt > 0;
}

void SimPath::black_out(Nanos begin, Nanos end) noexcept {
  dark_begin_ = begin;
  dark_end_ = end;
}

bool SimPath::refuses() noexcept {
  if (faults_.busy <= 0 || !busy_.chance(faults_.busy)) return false;
  ++stats_.busy;
  return true;
}

void SimPath::enter(std::span<const uint8_t> packet, size_t wire_bytes, Nanos now, Nanos due, SimPool& pool,
                    SimQueue& queue) {
  ++stats_.packets;
  stats_.bytes += packet.size();
  stats_.wire_bytes += wire_bytes;
  if (dark(now)) {
    ++stats_.blacked_out;
    return;
  }
  const FaultDice::Fate fate = faulty_ ? dice_.decide(chances_) : FaultDice::Fate{};
  if (fate.drop) {
    ++stats_.lost;
    return;
  }
  launch(packet, due, fate, pool, queue);
  if (fate.duplicate) {
    ++stats_.duplicated;
    launch(packet, due, dice_.decide(chances_), pool, queue);
  }
}

void SimPath::launch(std::span<const uint8_t> packet, Nanos due, const FaultDice::Fate& fate, SimPool& pool,
                     SimQueue& queue) {
  SimBuffer* const buffer = pool.take();
  buffer->state = SimBuffer::State::kInFlight;
  buffer->bytes = static_cast<uint32_t>(packet.size());
  buffer->due = due;
  buffer->from = from_;
  buffer->to = to_;
  std::memcpy(buffer->data(), packet.data(), packet.size());
  if (fate.corrupt) corrupt(*buffer, fate.where);
  if (fate.reorder) {
    ++stats_.reordered;
    buffer->due += 1 + fate.late % faults_.reorder_delay;
  }
  queue.put(buffer);
}

void SimPath::corrupt(SimBuffer& buffer, uint64_t seed) noexcept {
  if (buffer.bytes == 0) return;
  ++stats_.corrupted;
  Random random(seed);
  if (random.chance(0.25)) {
    buffer.bytes = static_cast<uint32_t>(random.below(buffer.bytes));
    return;
  }
  std::array<uint64_t, 8> bits;
  const auto end = bits.begin() + 1 + static_cast<ptrdiff_t>(random.below(bits.size()));
  for (auto bit = bits.begin(); bit != end; ++bit) {
    *bit = random.below(8 * uint64_t{buffer.bytes});
    if (std::find(bits.begin(), bit, *bit) != bit) continue;  // flipping a bit twice would restore it
    buffer.data()[*bit / 8] ^= static_cast<uint8_t>(1U << (*bit % 8));
  }
}

bool SimPath::leave(SimBuffer* buffer, SimPool& pool) noexcept {
  if (dark(buffer->due)) {
    ++stats_.blacked_out;
    pool.give(buffer);
    return false;
  }
  ++stats_.delivered;
  return true;
}

// ---- A wire

bool SimWire::has_room(size_t wire_bytes, Nanos now) const noexcept {
  if (free_at_ <= now) return true;
  const double waiting =
      static_cast<double>(free_at_ - now) * static_cast<double>(model_.bits_per_second) / (8.0 * kSecond);
  return waiting + static_cast<double>(wire_bytes) <= static_cast<double>(model_.queue_bytes);
}

Nanos SimWire::occupy(size_t wire_bytes, Nanos now) noexcept {
  if (free_at_ < now) {
    free_at_ = now;
    free_fraction_ = 0;
  }
  const uint64_t fractions = wire_bytes * 8 * kSecond + free_fraction_;
  free_at_ += fractions / model_.bits_per_second;
  free_fraction_ = fractions % model_.bits_per_second;
  return free_at_ + model_.delay;
}

// ---- A cable

void SimLink::send(std::span<const uint8_t> packet, Nanos now, SimPool& pool) {
  const size_t wire_bytes = wire_.wire_bytes(packet.size());
  if (!wire_.has_room(wire_bytes, now)) return count_queue_drop();
  enter(packet, wire_bytes, now, wire_.occupy(wire_bytes, now), pool, wire_.queue());
}

SimBuffer* SimLink::arrive(SimPool& pool) noexcept {
  SimBuffer* const buffer = wire_.queue().take();
  return leave(buffer, pool) ? buffer : nullptr;
}

}  // namespace gradlane
