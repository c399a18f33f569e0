// bundles.h - helpers that pass frames through a BundleWriter and a BundleReader. Buffers have exact sizes, so that
// AddressSanitizer sees overruns
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "dataplane/accelerator/engine/bundle.h"
#include "tests/dataplane/accelerator/engine/frames.h"

namespace gradlane::test {

inline constexpr size_t kMtu = 1500;

inline std::vector<uint8_t> record_of(const Codec& codec, const Bytes& frame, unsigned lead = 0) {
  const Bytes payload = payload_of(frame);
  std::vector<uint8_t> record(payload.size());
  record.resize(accel::write_record(codec, payload, lead, record));
  return record;
}

// A BundleWriter with the memory of its frame.
class Bundle {
 public:
  explicit Bundle(const Codec& codec, size_t mtu = kMtu) : codec_(codec), mtu_(mtu), memory_(new uint8_t[mtu + 14]) {}

  // Adds a frame to the bundle. Returns false if the frame cannot be compressed, or does not fit.
  [[nodiscard]] bool add(const Bytes& frame, unsigned lead = 0) {
    const std::vector<uint8_t> record = record_of(codec_, frame, lead);
    if (record.empty()) return false;
    if (writer_.open()) return writer_.add(frame.data(), accel::view_packet(frame), record);
    std::copy(frame.begin(), frame.end(), memory_.get());
    writer_.begin(memory_.get(), accel::view_packet(frame), mtu_, codec_, record);
    return true;
  }
  [[nodiscard]] Bytes finish() {
    const size_t bytes = writer_.finish(kTosWire);
    return Bytes(memory_.get(), memory_.get() + bytes);
  }
  [[nodiscard]] const accel::BundleWriter& writer() const { return writer_; }

 private:
  Codec codec_;
  size_t mtu_;
  std::unique_ptr<uint8_t[]> memory_;
  accel::BundleWriter writer_;
};

struct Received {
  accel::BundleFault fault = accel::BundleFault::kNone;
  std::vector<Bytes> frames = {};
};

// Passes a frame from the wire to a reader. Returns the fault, and the frames that the reader makes.
inline Received receive(accel::BundleReader& reader, const Bytes& wire, size_t mtu = kMtu) {
  const std::unique_ptr<uint8_t[]> exact(new uint8_t[wire.size()]);
  std::copy(wire.begin(), wire.end(), exact.get());
  const std::span<const uint8_t> frame(exact.get(), wire.size());
  Received received{reader.begin(frame, accel::view_packet(frame), mtu)};
  const std::unique_ptr<uint8_t[]> out(new uint8_t[mtu + 14]);
  while (reader.records() != 0) {
    const size_t bytes = reader.next(kTosCompressed, {out.get(), mtu + 14});
    received.frames.emplace_back(out.get(), out.get() + bytes);
    if (bytes == 0) break;
  }
  return received;
}
inline Received receive(const Bytes& wire, size_t mtu = kMtu) {
  accel::BundleReader reader(select_isa());
  return receive(reader, wire, mtu);
}

}  // namespace gradlane::test
