// frames.cc - packets for a loopback, and decoding and encoding them in mode codec (the loopback's one thread)
#include "dataplane/loopback/frames.h"

#include <algorithm>
#include <cstring>

#include "collectives/crc32c.h"
#include "collectives/wire.h"
#include "dataplane/loopback/ports.h"

namespace gradlane {
namespace {

constexpr uint16_t kHostPort = 9;  // the discard service
constexpr size_t kHeaders = sizeof(LinkHeader) + sizeof(RunHeader);
constexpr size_t kStride = 4096;  // floats between the starts of the data of two packets

// Writes a data packet with as many floats as fit, and returns its length.
size_t write_data(std::span<uint8_t> packet, const Codec& codec, std::span<const float> floats) noexcept {
  const EncodeResult run = codec.encode(floats, packet.subspan(kHeaders));
  LinkHeader link{};
  link.magic = kMagic;
  link.version = kProtocolVersion;
  link.kind = PacketKind::kData;
  RunHeader header{};
  header.count = static_cast<uint16_t>(run.floats);
  header.bytes = static_cast<uint16_t>(run.bytes);
  header.phase = Phase::kGather;
  header.codec = static_cast<uint8_t>(codec.id());
  header.param = codec.param();
  store(packet.data() + sizeof(link), header);
  store(packet.data(), link);
  const size_t bytes = kHeaders + run.bytes;
  const uint32_t state = crc32c(kCrcStart, packet.data() + sizeof(link), bytes - sizeof(link));
  link.crc = ~crc32c(state, packet.data(), kCrcOffset);
  store(packet.data(), link);
  return bytes;
}

size_t write_control(std::span<uint8_t> packet) noexcept {
  LinkHeader link{};
  link.magic = kMagic;
  link.version = kProtocolVersion;
  link.kind = PacketKind::kAck;
  store(packet.data(), link);
  link.crc = ~crc32c(kCrcStart, packet.data(), kCrcOffset);
  store(packet.data(), link);
  return sizeof(link);
}

}  // namespace

void write_loopback_frame(std::span<uint8_t> frame, const LoopbackConfig& config, size_t number) noexcept {
  const auto traffic = static_cast<TrafficClass>(number % kTrafficClasses);
  const size_t first = number * kStride % (kLoopbackFloats / 2);
  const std::span<const float> floats =
      config.data.subspan(first, std::min(kMaxRunFloats, kLoopbackFloats - kLoopbackFloats / 2));
  std::ranges::fill(frame, uint8_t{0});
  const std::span<uint8_t> packet = frame.subspan(kFrameBytes);
  size_t bytes = packet.size();
  if (packet.size() >= kMinPacket) {
    static const Codec raw = codec_of(FloatForm::kFp32, config.codec.isa());
    if (traffic == TrafficClass::kCompressed) bytes = write_data(packet, config.codec, floats);
    if (traffic == TrafficClass::kRaw) bytes = write_data(packet, raw, floats);
    if (traffic == TrafficClass::kControl) bytes = write_control(packet);
  }
  Flow flow = loopback_flow(0, 1);
  if (traffic == TrafficClass::kHost) flow.destination_port = kHostPort;
  write_headers(frame.data(), flow, kLoopbackClassifier.tos_of(traffic), bytes);
}

bool recode_packet(std::span<uint8_t> packet, const Codec& codec, std::span<float> scratch, uint64_t& floats) noexcept {
  if (packet.size() < sizeof(LinkHeader)) return false;
  if (load<LinkHeader>(packet.data()).kind != PacketKind::kData) return true;
  std::span<uint8_t> rest = packet.subspan(sizeof(LinkHeader));
  while (!rest.empty()) {
    if (rest.size() < sizeof(RunHeader)) return false;
    const auto run = load<RunHeader>(rest.data());
    rest = rest.subspan(sizeof(RunHeader));
    if (run.bytes > rest.size()) return false;
    if (run.phase == Phase::kReduce || run.phase == Phase::kGather) {
      if (run.codec != static_cast<uint8_t>(codec.id()) || run.param != codec.param()) return false;
      const std::span<uint8_t> block = rest.first(run.bytes);
      const std::span<float> decoded = scratch.first(run.count);
      if (codec.decode(block, decoded) != Status::kOk) return false;
      const EncodeResult again = codec.encode(decoded, block);
      if (again.floats != run.count || again.bytes != run.bytes) return false;
      floats += run.count;
    }
    rest = rest.subspan(run.bytes);
  }
  return true;
}

}  // namespace gradlane
