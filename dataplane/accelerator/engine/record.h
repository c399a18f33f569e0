// record.h - records, the compressed form of one packet's payload: written, checked, restored (worker thread; pure
// functions)
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "compress/codec.h"
#include "dataplane/accelerator/engine/wire_format.h"

namespace gradlane::accel {

// Writes the record of `payload`: RecordHeader (mask 0), lead bytes, trail bytes and block. The first float starts
// after `lead` (0 to 3) bytes. Returns the length of the record. Returns 0 if the payload has no complete float, or if
// the record with a GroupHeader would not be shorter than the payload. So no packet ever grows. `out` must have space
// for payload.size() bytes and must not overlap the payload. If 0 is returned, the content of `out` is unspecified.
[[nodiscard]] size_t write_record(const Codec& codec, std::span<const uint8_t> payload, unsigned lead,
                                  std::span<uint8_t> out) noexcept;

enum class RecordFault : uint8_t {
  kNone,
  kShort,     // record ends before the length that its header says, or within its header
  kBadShape,  // bits are set that must be zero, or lead and trail leave no whole number of floats
  kBadMask,   // mask names header words that are not allowed
  kBadBlock,  // tags of the block contradict its length
  kTooLong,   // bytes are left over, or the payload has another length than requested
};

// Pointers to the parts of a record.
struct RecordView {
  RecordHeader header{};
  const uint8_t* words = nullptr;  // header words
  const uint8_t* raw = nullptr;    // lead bytes, then trail bytes
  std::span<const uint8_t> block{};
  size_t lead = 0, trail = 0, floats = 0;
  size_t bytes = 0;  // length of the whole record
};

// Finds the parts of the record at the start of `bytes`. Its mask may name only header words in `allowed_mask`. Checks
// everything except the block. Reads nothing outside `bytes`.
[[nodiscard]] RecordFault view_record(std::span<const uint8_t> bytes, uint16_t allowed_mask, RecordView& view) noexcept;

// Restores the payload of `view` into the header.payload_bytes bytes at `payload`. Returns kNone or kBadBlock. After
// kBadBlock, the content of the payload is unspecified.
[[nodiscard]] RecordFault restore_payload(const Codec& codec, const RecordView& view, uint8_t* payload) noexcept;

// Runs view_record() and restore_payload() on a record that write_record() made. Returns kTooLong if the record does
// not end with `record`, or if its payload has not exactly payload.size() bytes. Any input bytes are safe.
[[nodiscard]] RecordFault read_record(const Codec& codec, std::span<const uint8_t> record,
                                      std::span<uint8_t> payload) noexcept;

}  // namespace gradlane::accel
