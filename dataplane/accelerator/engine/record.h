// record.h - the compressed form of one packet's payload: written, checked, restored (worker thread; pure functions)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "compress/codec.h"
#include "dataplane/accelerator/engine/wire_format.h"

namespace gradlane::accel {

// Writes RecordHeader (mask 0), lead bytes, trail bytes and block for `payload`, whose first float starts behind `lead`
// (0 to 3) bytes. Returns the length of the record, or 0 if there is no whole float or the record with a GroupHeader
// would not be shorter than the payload: so no packet ever grows. `out` must have room for payload.size() bytes and not
// overlap the payload; what is written there when 0 is returned is unspecified.
[[nodiscard]] size_t write_record(const Codec& codec, std::span<const uint8_t> payload, unsigned lead,
                                  std::span<uint8_t> out) noexcept;

enum class RecordFault : uint8_t {
  kNone,
  kShort,     // ends before what its header says (or before its header)
  kBadShape,  // bits that must be zero, lead and trail that leave no whole number of floats
  kBadMask,   // names header words that there cannot be
  kBadBlock,  // the codec's tags contradict its length
  kTooLong,   // bytes left over; or a payload of another length than asked for
};

// Where the parts of a record are.
struct RecordView {
  RecordHeader header{};
  const uint8_t* words = nullptr;  // header words
  const uint8_t* raw = nullptr;    // lead bytes, then trail bytes
  std::span<const uint8_t> block{};
  size_t lead = 0, trail = 0, floats = 0;
  size_t bytes = 0;  // of the whole record
};

// The record at the start of `bytes`, of which only header words in `allowed_mask` may follow. Checks all but the
// block. Reads nothing outside.
[[nodiscard]] RecordFault view_record(std::span<const uint8_t> bytes, uint16_t allowed_mask, RecordView& view) noexcept;

// The payload, header.payload_bytes of it. Unless kNone is returned (kBadBlock if not), its content is unspecified.
[[nodiscard]] RecordFault restore_payload(const Codec& codec, const RecordView& view, uint8_t* payload) noexcept;

// Both, for a record as write_record() made it: exactly `record` gives exactly `payload`. Any bytes may come.
[[nodiscard]] RecordFault read_record(const Codec& codec, std::span<const uint8_t> record,
                                      std::span<uint8_t> payload) noexcept;

}  // namespace gradlane::accel
