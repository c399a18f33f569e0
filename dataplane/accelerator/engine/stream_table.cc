// stream_table.cc - a table of the TCP connections that are followed, of bounded size (worker thread only; no DPDK)
#include "dataplane/accelerator/engine/stream_table.h"

#include <algorithm>

#include "base/random.h"
namespace gradlane::accel {
namespace {

// Limit of buckets: the index of a stream has 32 bits.
constexpr size_t kMostBuckets = (size_t{1} << 32) / StreamTable::kWays - 1;

}  // namespace

StreamTable::StreamTable(size_t streams, uint64_t seed)
    : buckets_(std::clamp(streams / kWays + (streams % kWays != 0 ? 1 : 0), size_t{1}, kMostBuckets)),
      seed_(Random(seed).next()),
      tags_(std::make_unique<Tags[]>(buckets_)),
      streams_(std::make_unique<Stream[]>(buckets_ * kWays)) {}

StreamTable::Place StreamTable::place_of(const FlowKey& key) const noexcept {
  const uint64_t addresses = uint64_t{key.source_ip} << 32 | key.destination_ip;
  const uint64_t ports =
      uint64_t{key.protocol} << 32 | uint64_t{key.source_port} << 16 | uint64_t{key.destination_port};
  // The seed is part of both rounds. So without the seed nobody can choose two keys that collide after the first round.
  const uint64_t hash = Random::mix(Random::mix(addresses ^ seed_) + (ports ^ seed_ >> 7) * Random::kStep);
  return {static_cast<size_t>((hash >> 32) * buckets_ >> 32), static_cast<uint32_t>(hash) | 1};
}

uint32_t StreamTable::find(const FlowKey& key) const noexcept {
  const Place place = place_of(key);
  const Tags& tags = tags_[place.bucket];
  for (size_t way = 0; way < kWays; ++way) {
    const size_t index = place.bucket * kWays + way;
    if (tags.of[way] == place.tag && streams_[index].key == key) return static_cast<uint32_t>(index);
  }
  return kNone;
}

StreamTable::Inserted StreamTable::insert(const FlowKey& key) noexcept {
  const Place place = place_of(key);
  Tags& tags = tags_[place.bucket];
  size_t chosen = kWays;
  for (size_t way = 0; way < kWays; ++way) {
    const Stream& stream = streams_[place.bucket * kWays + way];
    if (tags.of[way] == 0) {
      chosen = way;
      break;
    }
    if (!stream.records.empty()) continue;
    if (chosen == kWays || stream.last_seen < streams_[place.bucket * kWays + chosen].last_seen) chosen = way;
  }
  if (chosen == kWays) return {};
  const bool evicted = tags.of[chosen] != 0;
  const auto index = static_cast<uint32_t>(place.bucket * kWays + chosen);
  tags.of[chosen] = place.tag;
  streams_[index] = Stream{.key = key};
  size_ += evicted ? 0 : 1;
  return {index, evicted};
}

void StreamTable::erase(uint32_t index) noexcept {
  tags_[index / kWays].of[index % kWays] = 0;
  --size_;
}

}  // namespace gradlane::accel
