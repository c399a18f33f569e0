// wire.h - the bytes of a gradlane packet behind UDP: link header, run headers, hello; docs/wire-format.md in code
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace gradlane {

// Integers travel little-endian, and structs are copied from and to packets as they are.
static_assert(std::endian::native == std::endian::little);

inline constexpr uint16_t kMagic = 0x4c47;  // "GL"
inline constexpr uint8_t kProtocolVersion = 2;

enum class PacketKind : uint8_t { kHello = 1, kAck = 2, kData = 3 };

// Starts every packet. magic, version, kind and crc keep their places and meanings in all versions of the protocol, so
// that two versions can name their difference.
struct [[gnu::packed]] LinkHeader {
  uint16_t magic;
  uint8_t version;
  PacketKind kind;
  uint32_t sequence;  // data: number of this packet on this link; else the number the next one will have
  uint64_t session;   // high half: generation of the ring; low half: who wins among those of one generation
  uint64_t sack;      // bit i: packet ack + 1 + sack_from + i has arrived
  uint32_t ack;       // all packets before this one have arrived
  uint16_t credit;    // packets from `ack` on that the sender of this header can take
  uint16_t sack_from;
  uint32_t stamp;  // the sender's clock when it sent this, in units of 64 ns; bit 0 is always set
  uint32_t echo;   // the stamp last received, advanced by the time it waited here; 0: none
  uint32_t crc;    // CRC32C of the bytes behind this header, followed by the bytes of this header before `crc`
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
inline constexpr unsigned kStampShift = 6;  // ns to stamps

enum class Phase : uint8_t {
  kReduce = 0,   // a partial sum: add to it and pass it on
  kGather = 1,   // a result: store it and pass it on
  kStart = 2,    // the sender has started this operation and takes its data; payload: Descriptor, perhaps an Offer
  kAbort = 3,    // the operation has failed; payload: AbortNotice
  kGrant = 4,    // the sender, who owns the block, takes its elements from the receiver up to granule `first`
  kPadding = 5,  // from here on there is nothing more in the packet
};

// Of a start, `first` is the stage that has started, one more where the codec must look at the tensor first: 0 then
// says that it is looking or has an offer, and takes nothing yet.
//
// A data packet is a sequence of runs, each this header and `bytes` bytes of payload. Reduce and gather runs describe
// `count` elements of one block of the tensor, from granule `first` of that block on (a granule is 128 bytes of
// uncompressed elements). Behind the last one there may be padding: zeros that are fewer than a run header's, or a run
// of kPadding and whatever follows.
struct [[gnu::packed]] RunHeader {
  uint32_t operation;  // number within the session, from 0
  uint32_t digest;     // of the operation's Descriptor: both ends must mean the same operation
  uint32_t first;      // granules
  uint16_t count;      // elements
  uint16_t bytes;      // of payload
  uint8_t block;
  Phase phase;
  uint8_t codec;  // CodecId; kNoCodec for all types but fp32
  uint8_t param;
};
static_assert(sizeof(RunHeader) == 20);
static_assert(offsetof(RunHeader, first) == 8);
static_assert(offsetof(RunHeader, count) == 12);
static_assert(offsetof(RunHeader, bytes) == 14);
static_assert(offsetof(RunHeader, block) == 16);
static_assert(offsetof(RunHeader, param) == 19);

inline constexpr unsigned kMaxStages = 4;  // of an operation, and one for looking first
inline constexpr size_t kGranuleBytes = 128;
inline constexpr size_t kMaxRunElements = 32768;  // and of a packet that is sent from here

// What two ranks must agree on for one operation.
struct [[gnu::packed]] Descriptor {
  uint64_t tag;    // the callers'
  uint64_t count;  // elements of the tensor; of one rank's share for reduce-scatter and all-gather
  uint16_t root;
  uint8_t kind;       // OpKind
  uint8_t type;       // ElementType
  uint8_t reduction;  // Reduction
  uint8_t codec;
  uint8_t param;
  uint8_t reserved;  // 0
  // ---- Where it does not go round the ring; else left out, and not part of the digest.
  uint32_t strategy;   // StrategyId::code(); 0: the ring
  uint8_t back_codec;  // of an aggregator's results
  uint8_t back_param;
  uint16_t reserved2;  // 0
  // ---- Where one of them is not 0; else left out, and not part of the digest.
  uint64_t arguments;  // more_arguments() of the codec,
  uint64_t back_arguments;
};
static_assert(sizeof(Descriptor) == 48);
inline constexpr size_t kRingDescriptor = 24;
inline constexpr size_t kPlainDescriptor = 32;
static_assert(offsetof(Descriptor, strategy) == kRingDescriptor);
static_assert(offsetof(Descriptor, arguments) == kPlainDescriptor);

// Behind all of a descriptor, of codecs that ranks agree on something for: what the sender offers, once it knows.
struct [[gnu::packed]] Offer {
  float value;        // finite, not negative
  uint32_t reserved;  // 0
};
static_assert(sizeof(Offer) == 8);

// Why an operation failed, for the ranks that have not noticed.
struct [[gnu::packed]] AbortNotice {
  uint64_t ours;
  uint64_t theirs;
  uint16_t rank;
  uint8_t code;   // FailureCode
  uint8_t field;  // Field
  uint32_t reserved;
};
static_assert(sizeof(AbortNotice) == 24);

// What all nodes must be configured alike in, beside MTU and codec: for naming what differs where digests do.
struct [[gnu::packed]] RingSettings {
  uint16_t nodes = 0;  // 0: not told
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

// Payload of a hello. It has grown, and may grow further: what is missing at its end counts as zeros. The first 56
// bytes stay.
struct [[gnu::packed]] Hello {
  uint64_t incarnation;  // random, chosen when the sender's node was made
  uint64_t challenge;    // the receiver shall send this back as `echo`
  uint64_t echo;         // the receiver's challenge, as last seen; 0: none
  uint64_t rank_table;   // digest of the ranks' addresses
  uint16_t world;
  uint16_t rank;    // of the sender
  uint16_t target;  // whom the sender takes the receiver for
  uint16_t mtu;     // longest packet, from the link header on, in bytes
  uint8_t codec;
  uint8_t param;
  uint16_t reach;      // ranks known to be in this session without a gap, counted back from the sender
  uint8_t cause_code;  // FailureCode that ended the generation before this one
  uint8_t unsettled;   // 1: the sender wants an answer
  uint16_t cause_rank;
  uint64_t met;  // incarnation of the receiver that the sender has met in this session; 0: none
  // ---- Since the hello has 96 bytes.
  uint32_t since;  // least generation in which trainers took part that have begun something in this session; 0: none
  uint8_t cause_field;  // Field that the cause is about,
  uint8_t complaint;    // Field: what is wrong with the receiver's packets as they arrive at the sender; 0: nothing
  uint16_t complaint_value;  // as they arrive
  uint64_t cause_ours;       //   and its values
  uint64_t cause_theirs;
  RingSettings settings;
  // ---- Since it has 104. Left out where it is 0.
  uint64_t strategies;  // that operations may name: pack_strategies(); 0: the ring
  // ---- Since it has 112. Left out where it is 0, and all that follows.
  uint64_t arguments;  // more_arguments() of the codec
  // ---- Since it has 120. Left out where it is 0.
  uint64_t left_open;  // left_open_value(): what trainers' libraries choose
};
static_assert(sizeof(Hello) == 120);
static_assert(offsetof(Hello, since) == 56);
static_assert(offsetof(Hello, cause_field) == 60);
static_assert(offsetof(Hello, cause_ours) == 64);
static_assert(offsetof(Hello, settings) == 80);
static_assert(offsetof(Hello, strategies) == 96);
static_assert(offsetof(Hello, arguments) == 104);
static_assert(offsetof(Hello, left_open) == 112);
inline constexpr size_t kLeastHello = 56;

inline constexpr size_t kMinPacket = 256;  // smallest MTU: control runs and one raw granule fit
inline constexpr size_t kMaxMtu = 9216;    // longest packet, from the link header on
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
