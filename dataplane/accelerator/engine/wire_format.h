// wire_format.h - the format of a compressed packet after its UDP or TCP header, as docs/accelerator.md specifies it
//
// A *bundle* is one wire packet. It has the Ethernet, IPv4 and UDP or TCP headers of its first packet, a GroupHeader,
// and 1 to kMaxRecords records, to the end of the IP packet. A record stands for one packet. It has a RecordHeader, the
// header words that its mask names, the lead bytes, the trail bytes, and the codec's block. Header words are in the
// order of their bits in the mask, lowest bit first, and have 4 bytes each, as in the packet. Integers are
// little-endian, but header words are copied and stay in network order.
#pragma once

#include <cstddef>
#include <cstdint>

#include "collectives/wire.h"

namespace gradlane::accel {

inline constexpr uint8_t kGroupMagic = 0xa6;
inline constexpr uint8_t kGroupVersion = 2;
inline constexpr uint8_t kKindRecords = 1, kKindHello = 2, kKindAnswer = 3;

struct [[gnu::packed]] GroupHeader {
  uint8_t magic;
  uint8_t version_kind;  // version in the high 4 bits, kind in the low ones
  uint8_t codec;         // CodecId; hello and answer: 0
  uint8_t param;         // parameter byte of the codec; hello and answer: 0
};
inline constexpr size_t kGroupBytes = 4;
static_assert(sizeof(GroupHeader) == kGroupBytes);
static_assert(offsetof(GroupHeader, version_kind) == 1);
static_assert(offsetof(GroupHeader, codec) == 2);
static_assert(offsetof(GroupHeader, param) == 3);

struct [[gnu::packed]] RecordHeader {
  uint16_t payload_bytes;  // length of the packet's UDP or TCP payload
  uint16_t block_bytes;
  uint8_t shape;  // bits of kLeadMask, kTrailMask and kNoUdpChecksumBit
  uint8_t zero;
  uint16_t mask;  // bits of the header words that follow; 0 in the first record
};
inline constexpr size_t kRecordHeaderBytes = 8;
static_assert(sizeof(RecordHeader) == kRecordHeaderBytes);
static_assert(offsetof(RecordHeader, block_bytes) == 2);
static_assert(offsetof(RecordHeader, shape) == 4);
static_assert(offsetof(RecordHeader, zero) == 5);
static_assert(offsetof(RecordHeader, mask) == 6);

// Bits of RecordHeader::shape. The floats lie between lead and trail: a whole number of them, at least one.
inline constexpr uint8_t kLeadMask = 0x03;   // raw bytes before the first float
inline constexpr uint8_t kTrailMask = 0x0c;  // raw bytes after the last float
inline constexpr unsigned kTrailShift = 2;
inline constexpr uint8_t kNoUdpChecksumBit = 0x10;  // the packet's UDP checksum was 0
inline constexpr uint8_t kShapeZeros = 0xe0;

// Bits of RecordHeader::mask: header words that differ from their prediction. The prediction is made from the previous
// record's packet.
inline constexpr unsigned kIpWord = 0;       // id, flags, fragment offset; predicted: id + 1, flags as before
inline constexpr unsigned kSeqWord = 1;      // TCP; predicted: as before, plus payload_bytes of the record before
inline constexpr unsigned kAckWord = 2;      // TCP; predicted: as before
inline constexpr unsigned kControlWord = 3;  // data offset (always as before), flags, window; predicted: as before
inline constexpr unsigned kOptionWord = 4;   // TCP: the first of up to 10 option words; predicted: as before
inline constexpr unsigned kMaxOptionWords = 10;
inline constexpr unsigned kMaxHeaderWords = kOptionWord + kMaxOptionWords;

inline constexpr size_t kMaxRecords = 32;

// The bytes after the GroupHeader of a hello or an answer.
struct [[gnu::packed]] HelloBody {
  uint64_t nonce;
};
inline constexpr size_t kHelloBytes = kGroupBytes + sizeof(HelloBody);  // length of the UDP payload
static_assert(kHelloBytes == 12);

}  // namespace gradlane::accel
