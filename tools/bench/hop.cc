// hop.cc - the work of a hop without the exchange: codec, CRC and memcpy on a burst of packets
#include "tools/bench/hop.h"

#include <cstring>
#include <optional>

#include "collectives/crc32c.h"

namespace gradlane {
namespace {

constexpr size_t kLine = 64;
constexpr size_t kGranule = kGranuleBytes / sizeof(float);
constexpr size_t kHeaders = sizeof(LinkHeader) + sizeof(RunHeader);

// Blocks that the timed rank does not forward: kLastSums, because it has completed the sum, and kLastResults, because
// all ranks have the result then.
constexpr unsigned kLastSums = BenchRing::kTimed;
constexpr unsigned kLastResults = BenchRing::kTimed + 1;

size_t scratch_stride(const Codec& codec, size_t mtu) {
  const size_t most = codec.row().width != 0 ? mtu : codec.max_bytes(kMaxRunElements);
  return (most / kLine | 1) * kLine + kLine;
}

void touch_lines(const void* begin, size_t bytes) noexcept {
  const auto* const at = static_cast<const volatile uint8_t*>(begin);
  for (size_t i = 0; i < bytes; i += kLine) (void)at[i];
}

}  // namespace

HopBurst::HopBurst(const Codec& codec, const Blocks& blocks, std::span<float> tensor, size_t mtu, size_t most_packets)
    : codec_(codec),
      blocks_(blocks),
      tensor_(tensor),
      mtu_(mtu),
      slots_(most_packets + 2),
      stride_(scratch_stride(codec, mtu)),
      scratch_(allocate_memory(stride_ * slots_)) {}

// ---- Looking at packets

Hop HopBurst::kind_of(const RunHeader& header) const noexcept {
  if (header.phase == Phase::kReduce && header.block != kLastSums) return Hop::kReduce;
  if (header.phase == Phase::kGather && header.block != kLastResults) return Hop::kGather;
  return Hop::kNone;
}

bool HopBurst::add_runs(std::span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const auto header = load<RunHeader>(bytes.data());
    const Hop kind = kind_of(header);
    if (kind == Hop::kNone || (hop_ != Hop::kNone && kind != hop_)) return false;
    hop_ = kind;
    const size_t first = blocks_.offset(header.block) + header.first * kGranule;
    runs_.push_back({bytes.subspan(sizeof(RunHeader), header.bytes), tensor_.subspan(first, header.count)});
    floats_ += header.count;
    bytes = bytes.subspan(sizeof(RunHeader) + header.bytes);
  }
  return true;
}

Hop HopBurst::look_at(std::span<const Arrival> burst, size_t packets) {
  packets_.clear();
  runs_.clear();
  floats_ = bytes_ = 0;
  hop_ = Hop::kNone;
  for (const Arrival& each : burst) {
    if (load<LinkHeader>(each.packet.data).kind != PacketKind::kData) continue;
    if (!add_runs({each.packet.data + sizeof(LinkHeader), each.bytes - sizeof(LinkHeader)})) return Hop::kNone;
    packets_.push_back({each.packet.data, each.bytes});
    bytes_ += each.bytes;
  }
  return packets_.size() == packets ? hop_ : Hop::kNone;
}

size_t HopBurst::runs_of(const Arrival& arrival) noexcept {
  size_t runs = 0;
  for (size_t at = sizeof(LinkHeader); at < arrival.bytes; ++runs) {
    at += sizeof(RunHeader) + load<RunHeader>(arrival.packet.data + at).bytes;
  }
  return runs;
}

void HopBurst::touch(std::span<uint8_t* const> buffers) const noexcept {
  for (const Data& packet : packets_) touch_lines(packet.bytes, packet.length);
  for (const Run& run : runs_) touch_lines(run.elements.data(), run.elements.size_bytes());
  for (size_t i = 0; i <= packets_.size(); ++i) touch_lines(scratch(i), mtu_);
  for (const uint8_t* const buffer : buffers) touch_lines(buffer, mtu_);
}

// ---- The work

size_t HopBurst::code() noexcept {
  size_t good = 0;
  for (size_t i = 0; i < runs_.size(); ++i) {
    const Run& run = runs_[i];
    good += codec_.validate(run.payload, run.elements.size()) == Status::kOk ? 1 : 0;
    if (hop_ == Hop::kReduce) {
      good += codec_.hop(run.payload, run.elements, {scratch(i), stride_}).floats;
    } else {
      good += codec_.decode(run.payload, run.elements) == Status::kOk ? 1 : 0;
    }
  }
  return good;
}

size_t HopBurst::code_cut() noexcept {
  if (hop_ != Hop::kReduce) return code();
  const size_t room = mtu_ - kHeaders;
  size_t good = 0;
  size_t packet = 0;
  for (const Run& run : runs_) {
    good += codec_.validate(run.payload, run.elements.size()) == Status::kOk ? 1 : 0;
    for (size_t done = 0; done < run.elements.size();) {
      if (open_bytes_ + kLongestGroup > room) {
        ++packet;
        open_bytes_ = open_floats_ = 0;
      }
      uint8_t* const block = scratch(packet);
      const HopResult hop = codec_.hop(run.payload, run.elements, {block + open_bytes_, room - open_bytes_}, done);
      if (hop.floats == 0) return good;  // never happens for a valid block
      open_bytes_ = codec_.join(block, {open_floats_, open_bytes_}, {hop.floats, hop.bytes});
      open_floats_ += hop.floats;
      done += hop.floats;
    }
  }
  return good;
}

size_t HopBurst::check() const noexcept {
  size_t sum = 0;
  for (const Data& packet : packets_) {
    const uint8_t* const payload = packet.bytes + sizeof(LinkHeader);
    const size_t length = packet.length - sizeof(LinkHeader);
    uint32_t state = crc32c(kCrcStart, payload, length);
    sum += crc32c(state, load<HeaderWords>(packet.bytes));
    if (hop_ == Hop::kReduce) state = crc32c(kCrcStart, payload, length);
    sum += crc32c(state, load<HeaderWords>(packet.bytes));
  }
  return sum;
}

size_t HopBurst::copy() noexcept {
  for (size_t i = 0; i < packets_.size(); ++i) std::memcpy(scratch(i), packets_[i].bytes, mtu_ - kHeaders);
  return *scratch(0);
}

}  // namespace gradlane
