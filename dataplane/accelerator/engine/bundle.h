// bundle.h - several compressed packets of a flow in one wire packet, and hellos: written, read (worker thread)
//
// The bytes are in wire_format.h. A bundle is made in the frame of its first packet, whose headers are those of the
// wire packet. The headers of each further packet are predicted from those of the packet before, and its record tells
// only the words that are not as predicted. What must be the same in all packets of a bundle: MAC addresses, addresses,
// ports, ToS with ECN, TTL, length of the TCP header, urgent pointer; no IP options. Lengths and checksums are made
// anew when packets are restored. Addresses, ports, ToS and TTL are restored as those of the wire packet *when it
// arrived*: what a router or a NAT on the way did to it was done to all.
//
// Hot path: no allocation, nothing is read outside the given frames, whatever bytes arrive.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/counter_set.h"
#include "compress/codec.h"
#include "dataplane/accelerator/engine/packet_view.h"
#include "dataplane/accelerator/engine/record.h"
#include "dataplane/accelerator/engine/wire_format.h"

namespace gradlane::accel {

// The words of a packet's headers that may differ within a bundle, in network order: word i is bit i of a mask.
class HeaderWords {
 public:
  HeaderWords() = default;
  // Of a kTcp or kUdp frame.
  HeaderWords(const uint8_t* frame, const PacketView& view) noexcept;
  // The bits that a mask may have.
  [[nodiscard]] uint16_t allowed() const noexcept { return static_cast<uint16_t>((1U << count_) - 1); }
  [[nodiscard]] uint16_t differences(const HeaderWords& other) const noexcept;
  // Whether word i may become `value`: not a fragment, no reserved bit, no SYN, the data offset as it is.
  [[nodiscard]] bool may_be(size_t i, uint32_t value) const noexcept;
  [[nodiscard]] uint32_t word(size_t i) const noexcept { return words_[i]; }
  void set(size_t i, uint32_t value) noexcept { words_[i] = value; }
  // Becomes the prediction for the packet behind this one, which has so much payload.
  void advance(size_t payload_bytes) noexcept;
  // Into the headers of a frame whose IP header has 20 bytes.
  void write(uint8_t* frame) const noexcept;

 private:
  std::array<uint32_t, kMaxHeaderWords> words_{};
  unsigned count_ = 0;  // 1 for UDP
};

class BundleWriter {
 public:
  // `frame`, whose view may_compress(), becomes the wire frame: its payload is replaced by a group header and `record`,
  // which is of write_record() with `codec` (mask 0, group header included shorter than the payload). most_bytes, of
  // the IP packet: the MTU; there is room for most_bytes + 14 bytes at `frame`. The frame stays the caller's, who
  // leaves it alone until finish().
  void begin(uint8_t* frame, const PacketView& view, size_t most_bytes, const Codec& codec,
             std::span<const uint8_t> record) noexcept;
  [[nodiscard]] bool open() const noexcept { return frame_ != nullptr; }
  [[nodiscard]] const FlowKey& key() const noexcept { return view_.key; }
  // Adds a later packet, with a record of the same codec. False, and nothing is changed: it is of another flow, its
  // headers differ in what must be the same, or it does not fit.
  [[nodiscard]] bool add(const uint8_t* frame, const PacketView& view, std::span<const uint8_t> record) noexcept;
  [[nodiscard]] size_t records() const noexcept { return records_; }
  // Code point (the ECN bits stay those of the packets), lengths, checksums; returns the length of the frame. Then the
  // bundle is not open any more.
  [[nodiscard]] size_t finish(uint8_t wire_tos) noexcept;

 private:
  [[nodiscard]] bool same_headers(const uint8_t* frame, const PacketView& view) const noexcept;
  void append(std::span<const uint8_t> record, uint16_t mask, const HeaderWords& words, bool no_checksum) noexcept;

  uint8_t* frame_ = nullptr;
  PacketView view_{};      // of the first packet
  HeaderWords predicted_;  // headers of the next
  size_t most_bytes_ = 0;  // of the frame
  size_t bytes_ = 0;       // so far
  size_t records_ = 0;
};

// Why a packet with the wire's code point is dropped: it is not delivered, and counted under this name,
// which says among other counters what it is of.
enum class BundleFault : uint8_t {
  kNone,
  kBadHeaders,
  kBadIpChecksum,
  kBadChecksum,
  kNotOurs,
  kOtherVersion,
  kOtherKind,
  kBadHello,
  kUnknownCodec,
  kShortRecord,
  kBadShape,
  kBadMask,
  kBadWord,
  kBadBlock,
  kTooManyRecords,
  kRestoredTooLong,
  kCount
};
inline constexpr CounterRow<BundleFault> kBundleFaultRows[] = {
    {BundleFault::kNone, "bundle_none", "nothing is wrong"},
    {BundleFault::kBadHeaders, "bundle_bad_headers",
     "fragments, IP options, or TCP flags that compressed packets do not have"},
    {BundleFault::kBadIpChecksum, "bundle_bad_ip_checksum", "wrong IP header checksum"},
    {BundleFault::kBadChecksum, "bundle_bad_checksum", "wrong UDP or TCP checksum, or none"},
    {BundleFault::kNotOurs, "bundle_not_ours",
     "no group header: whoever sent it uses the wire's code point for something else"},
    {BundleFault::kOtherVersion, "bundle_other_version", "a version of the format that this one does not know"},
    {BundleFault::kOtherKind, "bundle_other_kind", "neither records nor hello nor answer"},
    {BundleFault::kBadHello, "bundle_bad_hello", "hello or answer that is not UDP or not of its length"},
    {BundleFault::kUnknownCodec, "bundle_unknown_codec", "a codec or parameter that this version does not know"},
    {BundleFault::kShortRecord, "bundle_short_record", "records that end before what they say"},
    {BundleFault::kBadShape, "bundle_bad_shape",
     "records whose lead and trail leave no whole number of floats, or reserved bits"},
    {BundleFault::kBadMask, "bundle_bad_mask", "records with header words that there cannot be"},
    {BundleFault::kBadWord, "bundle_bad_word",
     "header words that would make fragments, SYN, FIN, RST, URG, or change the header"},
    {BundleFault::kBadBlock, "bundle_bad_block", "blocks whose tags contradict their length"},
    {BundleFault::kTooManyRecords, "bundle_too_many_records", "more than 32 records"},
    {BundleFault::kRestoredTooLong, "bundle_restored_too_long",
     "records of packets longer than the MTU here: is it larger there?"},
};
static_assert(is_complete(kBundleFaultRows));
constexpr const auto& counter_rows(BundleFault) noexcept { return kBundleFaultRows; }

class BundleReader {
 public:
  // The codecs of records run on `isa`, which this CPU must support. Of the default: everywhere; set-up passes the one
  // of its own codec.
  explicit BundleReader(Isa isa = Isa::kScalar) noexcept : isa_(isa) {}

  // Checks the whole wire frame, of which `view` is the view: checksums, every record, that no restored packet is
  // longer than `mtu`. kNone: what follows holds until the next begin(), and next() may be called while the frame lies
  // there unchanged. Anything else: there are no records.
  [[nodiscard]] BundleFault begin(std::span<const uint8_t> frame, const PacketView& view, size_t mtu) noexcept;
  [[nodiscard]] unsigned kind() const noexcept { return kind_; }      // kKindRecords, kKindHello, kKindAnswer
  [[nodiscard]] size_t records() const noexcept { return records_; }  // left to restore
  [[nodiscard]] uint64_t nonce() const noexcept { return nonce_; }    // of hello and answer
  // Restores the next packet into `out` (room for mtu + 14 bytes; not in the frame), with the code point of `tos` and
  // the ECN bits that arrived. Returns the length of its frame; 0 if there is none left, or `out` is too short for it.
  [[nodiscard]] size_t next(uint8_t tos, std::span<uint8_t> out) noexcept;

 private:
  [[nodiscard]] BundleFault check(size_t mtu) noexcept;
  [[nodiscard]] BundleFault check_group(const GroupHeader& group) noexcept;
  [[nodiscard]] BundleFault check_hello() noexcept;
  [[nodiscard]] BundleFault check_records(size_t mtu) noexcept;
  [[nodiscard]] BundleFault check_record(const RecordView& record, size_t mtu) const noexcept;

  Isa isa_;
  std::optional<Codec> codec_;  // that of the bundle before, often that of the next
  const uint8_t* frame_ = nullptr;
  PacketView view_{};
  HeaderWords words_;                // of the packet that comes next, as predicted
  std::span<const uint8_t> rest_{};  // records not restored yet
  size_t records_ = 0;
  unsigned kind_ = 0;
  uint64_t nonce_ = 0;
};

// ---- Hellos: UDP between the same port, TTL 64.

inline constexpr size_t kHelloFrameBytes = 14 + 20 + 8 + kHelloBytes;

// Writes a hello (or answer) of kHelloFrameBytes bytes, with the MAC and IP addresses of `like_frame`, an IPv4 frame
// elsewhere in memory. Returns its length.
[[nodiscard]] size_t write_hello(uint8_t* out, const uint8_t* like_frame, uint16_t udp_port, uint8_t wire_tos,
                                 unsigned kind, uint64_t nonce) noexcept;
// Makes the answer of a hello, one that a BundleReader has taken, in place: addresses and ports swapped, the same
// nonce. Returns its length.
[[nodiscard]] size_t answer_hello(uint8_t* frame, const PacketView& view) noexcept;

}  // namespace gradlane::accel
