// wire.h - the bytes of a packet after the UDP header: link header, run headers, hello, as in docs/wire-format.md
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace gradlane {

// Integers travel little-endian, so structs are copied to and from packets unchanged.
static_assert(std::endian::native == std::endian::little);

inline constexpr uint16_t kMagic = 0x4c47;  // "GL"
inline constexpr uint8_t kProtocolVersion = 2;

enum class PacketKind : uint8_t { kHello = 1, kAck = 2, kData = 3 };

// Header at the start of every packet. The fields magic, version, kind and crc keep their offsets and meanings in all
// protocol versions. So nodes of two versions can report the difference.
struct [[gnu::packed]] LinkHeader {
  uint16_t magic;
  uint8_t version;
  PacketKind kind;
  uint32_t sequence;  // data packets: number of this packet on this link; others: number of the next data packet
  uint64_t session;   // upper half: generation of the ring; lower half: the greatest wins within a generation
  uint64_t sack;      // bit i: packet ack + 1 + sack_from + i has arrived
  uint32_t ack;       // all packets before this one have arrived
  uint16_t credit;    // number of packets from `ack` on that the sender of this header accepts
  uint16_t sack_from;
  uint32_t stamp;  // the sender's clock when it sent this, in units of 64 ns; bit 0 is always set
  uint32_t echo;   // latest stamp received, plus the time since its arrival; 0 if none was received
  uint32_t crc;    // CRC32C of the bytes after this header, followed by the bytes of this header before `crc`
};
static_assert(sizeof(LinkHeader) == 44);
static_assert(offsetof(LinkHeader, version) == 2);
static_assert(offsetof(LinkHeader, kind) == 3);
static_assert(offsetof(LinkHeader, sequence) == 4);
static_assert(offsetof(LinkHeader, session) == 8);
static_assert(offsetof(LinkHeader, sack) == 16);
static_assert(offsetof(LinkHeader, ack) == 24);
static_assert(offsetof(LinkHeader, credit) == 28);
static_assert(offsetof(LinkHeader, sack_from) == 30);
static_assert(offsetof(LinkHeader, stamp) == 32);
static_assert(offsetof(LinkHeader, echo) == 36);
static_assert(offsetof(LinkHeader, crc) == 40);

inline constexpr size_t kCrcOffset = offsetof(LinkHeader, crc);
inline constexpr unsigned kSackBits = 64;
inline constexpr unsigned kStampShift = 6;  // shift that turns ns into stamps

enum class Phase : uint8_t {
  kReduce = 0,  // a partial sum: add to it and pass it on
  kGather = 1,  // a result: store it and pass it on
  // the sender has started this operation and accepts its data; payload: Descriptor, and an Offer if it has one
  kStart = 2,
  kAbort = 3,    // the operation has failed; payload: AbortNotice
  kCredit = 4,   // the sender owns the block, and accepts elements of it from the receiver up to granule `first`
  kPadding = 5,  // the rest of the packet is padding
};

// `first` of a start is the number of the stage that has started. If the codec must scan the tensor before it encodes
// (Codec::scan()), `first` is one more. Then 0 means that the rank still scans, or has only an offer, and accepts no
// elements yet.
//
// A data packet is a sequence of runs. Each run is this header and `bytes` bytes of payload. Reduce and gather runs
// hold `count` elements of one block of the tensor, from granule `first` of that block on. A granule is 128 bytes of
// uncompressed elements. Padding may follow the last run: zeros that are shorter than a run header, or a run of
// kPadding, after which any bytes may follow.
struct [[gnu::packed]] RunHeader {
  uint32_t operation;  // number within the session, from 0
  uint32_t digest;     // digest of the operation's Descriptor, which must be the same at both ends
  uint32_t first;      // granules
  uint16_t count;      // elements
  uint16_t bytes;      // of payload
  uint8_t block;
  Phase phase;
  uint8_t codec;  // CodecId; kNoCodec for minima and maxima, and for all types but fp32
  uint8_t param;
};
static_assert(sizeof(RunHeader) == 20);
static_assert(offsetof(RunHeader, first) == 8);
static_assert(offsetof(RunHeader, count) == 12);
static_assert(offsetof(RunHeader, bytes) == 14);
static_assert(offsetof(RunHeader, block) == 16);
static_assert(offsetof(RunHeader, param) == 19);

// Numbers of stages in starts: three stages of an operation, and one number for a codec that scans the tensor first.
inline constexpr unsigned kMaxStages = 4;
inline constexpr size_t kGranuleBytes = 128;
// most elements of a run; this version also puts no more into one packet
inline constexpr size_t kMaxRunElements = 32768;

// The properties that must be equal on all ranks for one operation.
struct [[gnu::packed]] Descriptor {
  uint64_t tag;    // chosen by the caller
  uint64_t count;  // elements of the tensor; if has_shares(), of one rank's block
  uint16_t root;
  uint8_t kind;       // OpKind
  uint8_t type;       // ElementType
  uint8_t reduction;  // Reduction
  uint8_t codec;
  uint8_t param;
  uint8_t reserved;  // 0
  // ---- Present, and part of the digest, if `strategy` is not 0 or one of the arguments below is not 0.
  uint32_t strategy;   // StrategyId::code(); 0: the ring
  uint8_t back_codec;  // codec of an aggregator's results
  uint8_t back_param;
  uint16_t reserved2;  // 0
  // ---- Present, and part of the digest, if one of them is not 0.
  uint64_t arguments;  // more_arguments() of `codec`; the next field has those of `back_codec`
  uint64_t back_arguments;
};
static_assert(sizeof(Descriptor) == 48);
inline constexpr size_t kRingDescriptor = 24;
inline constexpr size_t kPlainDescriptor = 32;
static_assert(offsetof(Descriptor, strategy) == kRingDescriptor);
static_assert(offsetof(Descriptor, arguments) == kPlainDescriptor);

// The value that a rank offers if the codec needs an agreement between ranks. It follows a descriptor of full length,
// as soon as the rank knows the value.
struct [[gnu::packed]] Offer {
  float value;        // finite, not negative
  uint32_t reserved;  // 0
};
static_assert(sizeof(Offer) == 8);

// The reason why an operation failed, for ranks that have not noticed the failure.
struct [[gnu::packed]] AbortNotice {
  uint64_t ours;
  uint64_t theirs;
  uint16_t rank;
  uint8_t code;   // FailureCode
  uint8_t field;  // Field
  uint32_t reserved;
};
static_assert(sizeof(AbortNotice) == 24);

// The settings, apart from MTU and codec, that must be equal on all nodes. If the digests differ, these show which
// setting differs.
struct [[gnu::packed]] RingSettings {
  uint16_t nodes = 0;  // 0: the sender does not report its settings
  uint16_t trainers = 0;
  uint16_t lanes = 0;
  uint16_t udp_port = 0;
  uint8_t tos_compressed = 0;
  uint8_t tos_raw = 0;
  uint8_t tos_control = 0;
  uint8_t local_reduce = 0;
  uint32_t addresses = 0;  // digest of the nodes' numbers and addresses
};
static_assert(sizeof(RingSettings) == 16);

// Payload of a hello. Later versions may append fields; fields that are missing at the end count as zeros. The first 56
// bytes do not change.
struct [[gnu::packed]] Hello {
  uint64_t incarnation;  // random number, chosen when the sender's node started
  uint64_t challenge;    // number that the receiver must send back as `echo`
  uint64_t echo;         // latest challenge that the receiver sent; 0 if none
  uint64_t rank_table;   // digest of the ranks' addresses
  uint16_t world;
  uint16_t rank;    // rank of the sender
  uint16_t target;  // rank that the sender expects the receiver to have
  uint16_t mtu;     // longest packet, from the link header on, in bytes
  uint8_t codec;
  uint8_t param;
  uint16_t live_prefix;  // number of ranks known to be in this session without a gap, counted back from the sender
  uint8_t cause_code;    // FailureCode that ended the previous generation
  uint8_t unsettled;     // 1 if the sender wants an answer, else 0
  uint16_t cause_rank;
  uint64_t met;  // the receiver's incarnation, if the sender has confirmed it in this session; else 0
  // ---- Present in hellos of 96 bytes or more.
  // Earliest generation in which a trainer took part that has begun an operation in this session; 0 if there is none.
  uint32_t since;
  uint8_t cause_field;       // Field of that failure
  uint8_t complaint;         // Field that is wrong with the receiver's packets as they arrive at the sender; 0: nothing
  uint16_t complaint_value;  // its value on arrival
  uint64_t cause_ours;       // Failure::ours and, in the next field, Failure::theirs of that failure
  uint64_t cause_theirs;
  RingSettings settings;
  // ---- Present in hellos of 104 bytes or more. Left out if it and all that follow are 0.
  uint64_t strategies;  // strategies that operations may name: pack_strategies(); 0: the ring alone
  // ---- Present in hellos of 112 bytes or more. Left out if it and all that follow are 0.
  uint64_t arguments;  // more_arguments() of the codec
  // ---- Present in hellos of 120 bytes or more. Left out if it is 0.
  uint64_t auto_scope;  // choices left to the trainers' libraries: auto_scope_value()
};
static_assert(sizeof(Hello) == 120);
static_assert(offsetof(Hello, since) == 56);
static_assert(offsetof(Hello, cause_field) == 60);
static_assert(offsetof(Hello, cause_ours) == 64);
static_assert(offsetof(Hello, settings) == 80);
static_assert(offsetof(Hello, strategies) == 96);
static_assert(offsetof(Hello, arguments) == 104);
static_assert(offsetof(Hello, auto_scope) == 112);
inline constexpr size_t kLeastHello = 56;

inline constexpr size_t kMinPacket = 256;  // smallest MTU: control runs and one raw granule fit
inline constexpr size_t kMaxMtu = 16384;   // longest packet, from the link header on
// Bytes before each part of a packet that is longer than a datagram (dataplane/udp/segments.h).
inline constexpr size_t kSegmentHeader = 8;
inline constexpr uint16_t kSegmentMagic = 0x5347;
inline constexpr size_t kReportBytes = kSegmentHeader + sizeof(uint64_t);
// The first three bytes of a report that segments of a packet are missing, and the bit that is set if the packet is
// overdue. Byte 3 is the low byte of the session.
inline constexpr uint32_t kMissingSegments = kSegmentMagic | 0x80U << 16;
inline constexpr uint32_t kSegmentsOverdue = 0x40U << 16;
inline constexpr size_t kReportSequence = 4;     // offset of the sequence number of the packet
inline constexpr uint16_t kInSegments = 0x8000;  // in `mtu` of a hello
inline constexpr unsigned kMaxWorld = 256;

template <typename T>
T load(const uint8_t* bytes) noexcept {
  T value;
  std::memcpy(&value, bytes, sizeof(T));
  return value;
}

template <typename T>
void store(uint8_t* bytes, const T& value) noexcept {
  std::memcpy(bytes, &value, sizeof(T));
}

}  // namespace gradlane
