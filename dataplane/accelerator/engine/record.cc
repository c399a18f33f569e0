// record.cc - conversion of payloads into records and back (worker thread; pure functions)
#include "dataplane/accelerator/engine/record.h"

#include <algorithm>
#include <cstring>

namespace gradlane::accel {

// Floats in packets may be unaligned. The codecs accept that (compress/codec.h).
size_t write_record(const Codec& codec, std::span<const uint8_t> payload, unsigned lead,
                    std::span<uint8_t> out) noexcept {
  if (payload.size() > UINT16_MAX || lead > kLeadMask || payload.size() < lead + sizeof(float)) return 0;
  const size_t floats = (payload.size() - lead) / sizeof(float);
  const size_t trail = (payload.size() - lead) % sizeof(float);
  const size_t header = kRecordHeaderBytes + lead + trail;
  if (payload.size() <= header + kGroupBytes || out.size() <= header) return 0;
  // This is the longest block with which the packet still gets shorter. The encoder stops there.
  const size_t room = std::min(payload.size() - kGroupBytes - 1, out.size()) - header;
  const uint8_t* const from = payload.data() + lead;
  const EncodeResult result = codec.encode({reinterpret_cast<const float*>(from), floats}, {out.data() + header, room});
  if (result.floats != floats) return 0;
  const RecordHeader fields{.payload_bytes = static_cast<uint16_t>(payload.size()),
                            .block_bytes = static_cast<uint16_t>(result.bytes),
                            .shape = static_cast<uint8_t>(lead | trail << kTrailShift),
                            .zero = 0,
                            .mask = 0};
  store(out.data(), fields);
  std::memcpy(out.data() + kRecordHeaderBytes, payload.data(), lead);
  std::memcpy(out.data() + kRecordHeaderBytes + lead, payload.data() + payload.size() - trail, trail);
  return header + result.bytes;
}

RecordFault view_record(std::span<const uint8_t> bytes, uint16_t allowed_mask, RecordView& view) noexcept {
  if (bytes.size() < kRecordHeaderBytes) return RecordFault::kShort;
  view.header = load<RecordHeader>(bytes.data());
  const RecordHeader& header = view.header;
  view.lead = header.shape & kLeadMask;
  view.trail = (header.shape & kTrailMask) >> kTrailShift;
  const size_t raw = view.lead + view.trail;
  if ((header.shape & kShapeZeros) != 0 || header.zero != 0) return RecordFault::kBadShape;
  if (header.payload_bytes < raw + sizeof(float) || (header.payload_bytes - raw) % sizeof(float) != 0) {
    return RecordFault::kBadShape;
  }
  if ((header.mask & ~allowed_mask) != 0) return RecordFault::kBadMask;
  const size_t words = sizeof(uint32_t) * static_cast<size_t>(__builtin_popcount(header.mask));
  view.floats = (header.payload_bytes - raw) / sizeof(float);
  view.bytes = kRecordHeaderBytes + words + raw + header.block_bytes;
  if (view.bytes > bytes.size()) return RecordFault::kShort;
  view.words = bytes.data() + kRecordHeaderBytes;
  view.raw = view.words + words;
  view.block = {view.raw + raw, header.block_bytes};
  return RecordFault::kNone;
}

RecordFault restore_payload(const Codec& codec, const RecordView& view, uint8_t* payload) noexcept {
  uint8_t* const floats = payload + view.lead;
  std::memcpy(payload, view.raw, view.lead);
  std::memcpy(payload + view.header.payload_bytes - view.trail, view.raw + view.lead, view.trail);
  const Status status = codec.decode(view.block, {reinterpret_cast<float*>(floats), view.floats});
  return status == Status::kOk ? RecordFault::kNone : RecordFault::kBadBlock;
}

RecordFault read_record(const Codec& codec, std::span<const uint8_t> record, std::span<uint8_t> payload) noexcept {
  RecordView view;
  const RecordFault fault = view_record(record, 0, view);
  if (fault != RecordFault::kNone) return fault;
  if (view.bytes != record.size() || view.header.payload_bytes != payload.size()) return RecordFault::kTooLong;
  return restore_payload(codec, view, payload.data());
}

}  // namespace gradlane::accel
