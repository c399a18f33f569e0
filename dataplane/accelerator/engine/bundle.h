// bundle.h - writer and reader of bundles (several compressed packets of a flow in one wire packet) and of hellos
// (worker thread)
//
// The format is in wire_format.h. A bundle is made in the frame of its first packet, whose headers become those of the
// wire packet. The headers of each further packet are predicted from those of the packet before. Its record contains
// only the words that differ from the prediction. All packets of a bundle have the same MAC addresses, IP addresses,
// ports, ToS with ECN, and TTL. They also have the same length of the TCP header and the same urgent pointer, and no IP
// options. Lengths and checksums are computed again when packets are restored. Restored packets get the addresses,
// ports, ECN bits and TTL of the wire packet *as it arrived*. So a change by a router or a NAT on the way applies to
// all of them.
//
// Hot path: nothing is allocated, and nothing is read outside the given frames, whatever bytes arrive.
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

// The words of a packet's headers that may differ within a bundle, in network byte order. Bit i of a mask stands for
// word i.
class HeaderWords {
 public:
  HeaderWords() = default;
  // Reads the words of a kTcp or kUdp frame.
  HeaderWords(const uint8_t* frame, const PacketView& view) noexcept;
  // Returns a mask with the bits of all words that this packet has.
  [[nodiscard]] uint16_t allowed() const noexcept { return static_cast<uint16_t>((1U << count_) - 1); }
  [[nodiscard]] uint16_t differences(const HeaderWords& other) const noexcept;
  // Returns whether a record may set word i to `value`. The value must not make a fragment, set the reserved bit or one
  // of kNeverCompressed, or change the data offset.
  [[nodiscard]] bool may_be(size_t i, uint32_t value) const noexcept;
  [[nodiscard]] uint32_t word(size_t i) const noexcept { return words_[i]; }
  void set(size_t i, uint32_t value) noexcept { words_[i] = value; }
  // Turns the words into the prediction for the next packet. The present packet has `payload_bytes` of payload.
  void advance(size_t payload_bytes) noexcept;
  // Writes the words into the headers of a frame whose IP header has 20 bytes.
  void write(uint8_t* frame) const noexcept;

 private:
  std::array<uint32_t, kMaxHeaderWords> words_{};
  unsigned count_ = 0;  // number of words; 1 for UDP
};

class BundleWriter {
 public:
  // Turns `frame` into the wire frame: a group header and `record` replace its payload. may_compress(view) must be
  // true. `record` comes from write_record() with `codec` (mask 0). With the group header, it must be shorter than the
  // payload. `most_bytes` limits the length of the IP packet, and `frame` must have space for most_bytes + 14 bytes.
  // The frame stays the caller's, but the caller must not touch it until finish().
  void begin(uint8_t* frame, const PacketView& view, size_t most_bytes, const Codec& codec,
             std::span<const uint8_t> record) noexcept;
  [[nodiscard]] bool open() const noexcept { return frame_ != nullptr; }
  [[nodiscard]] const FlowKey& key() const noexcept { return view_.key; }
  // Adds a later packet, with a record of the same codec. Returns false and changes nothing if the packet is of another
  // flow, if its headers differ where they must be the same, or if it does not fit.
  [[nodiscard]] bool add(const uint8_t* frame, const PacketView& view, std::span<const uint8_t> record) noexcept;
  [[nodiscard]] size_t records() const noexcept { return records_; }
  // Completes the wire frame: sets its code point (the ECN bits stay those of the packets), lengths and checksums.
  // Returns the length of the frame. After that, the bundle is not open any more.
  [[nodiscard]] size_t finish(uint8_t wire_tos) noexcept;

 private:
  [[nodiscard]] bool same_headers(const uint8_t* frame, const PacketView& view) const noexcept;
  void append(std::span<const uint8_t> record, uint16_t mask, const HeaderWords& words, bool no_checksum) noexcept;

  uint8_t* frame_ = nullptr;
  PacketView view_{};      // view of the first packet
  HeaderWords predicted_;  // predicted headers of the next packet
  size_t most_bytes_ = 0;  // limit of the frame's length
  size_t bytes_ = 0;       // present length of the frame
  size_t records_ = 0;
};

// Reasons to drop a packet with the wire's code point. A dropped packet is not delivered, and is counted under the name
// of its fault. The prefix bundle_ distinguishes these names from those of other counters.
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
     "no group header: another program uses the wire's code point for its packets"},
    {BundleFault::kOtherVersion, "bundle_other_version", "a version of the format that this accelerator does not know"},
    {BundleFault::kOtherKind, "bundle_other_kind", "of an unknown kind: neither records nor hello nor answer"},
    {BundleFault::kBadHello, "bundle_bad_hello", "hello or answer that is not UDP, or has a wrong length"},
    {BundleFault::kUnknownCodec, "bundle_unknown_codec", "a codec or parameter that this accelerator does not know"},
    {BundleFault::kShortRecord, "bundle_short_record", "records that are shorter than the length in their header"},
    {BundleFault::kBadShape, "bundle_bad_shape",
     "records whose lead and trail leave no whole number of floats, or with reserved bits set"},
    {BundleFault::kBadMask, "bundle_bad_mask", "records with header words that their protocol does not have"},
    {BundleFault::kBadWord, "bundle_bad_word",
     "header words that would make fragments, set SYN, FIN, RST or URG, or change the header's length"},
    {BundleFault::kBadBlock, "bundle_bad_block", "blocks whose tags contradict their length"},
    {BundleFault::kTooManyRecords, "bundle_too_many_records", "more than 32 records"},
    {BundleFault::kRestoredTooLong, "bundle_restored_too_long",
     "records of packets longer than this accelerator's MTU: is the sender's MTU larger?"},
};
static_assert(is_complete(kBundleFaultRows));
constexpr const auto& counter_rows(BundleFault) noexcept { return kBundleFaultRows; }

class BundleReader {
 public:
  // Records are decoded by code for the instruction set `isa`, which this CPU must support. The default runs on every
  // CPU. The engine passes the ISA of its own codec.
  explicit BundleReader(Isa isa = Isa::kScalar) noexcept : isa_(isa) {}

  // Checks the whole wire frame, whose view is `view`: the checksums, every record, and that no restored packet is
  // longer than `mtu`. After kNone, the functions below are valid until the next begin(). next() reads the frame, so
  // the frame must not change until then. After a fault, there are no records.
  [[nodiscard]] BundleFault begin(std::span<const uint8_t> frame, const PacketView& view, size_t mtu) noexcept;
  [[nodiscard]] unsigned kind() const noexcept { return kind_; }      // kKindRecords, kKindHello, kKindAnswer
  [[nodiscard]] size_t records() const noexcept { return records_; }  // records left to restore
  [[nodiscard]] uint64_t nonce() const noexcept { return nonce_; }    // nonce of a hello or an answer
  // Restores the next packet into `out`, with the code point of `tos` and the ECN bits that arrived. `out` needs space
  // for mtu + 14 bytes, outside the wire frame. Returns the length of the restored frame, or 0 if no record is left or
  // `out` is too short.
  [[nodiscard]] size_t next(uint8_t tos, std::span<uint8_t> out) noexcept;

 private:
  [[nodiscard]] BundleFault check(size_t mtu) noexcept;
  [[nodiscard]] BundleFault check_group(const GroupHeader& group) noexcept;
  [[nodiscard]] BundleFault check_hello() noexcept;
  [[nodiscard]] BundleFault check_records(size_t mtu) noexcept;
  [[nodiscard]] BundleFault check_record(const RecordView& record, size_t mtu) const noexcept;

  Isa isa_;
  std::optional<Codec> codec_;  // codec of the previous bundle, kept because the next bundle often has the same codec
  const uint8_t* frame_ = nullptr;
  PacketView view_{};
  HeaderWords words_;                // predicted headers of the next packet
  std::span<const uint8_t> rest_{};  // records that are not restored yet
  size_t records_ = 0;
  unsigned kind_ = 0;
  uint64_t nonce_ = 0;
};

// ---- Hellos: UDP packets whose two ports are the same, with TTL 64.

inline constexpr size_t kHelloFrameBytes = 14 + 20 + 8 + kHelloBytes;

// Writes a hello or an answer of kHelloFrameBytes bytes to `out`. Its MAC and IP addresses are those of `like_frame`,
// an IPv4 frame elsewhere in memory. Returns its length.
[[nodiscard]] size_t write_hello(uint8_t* out, const uint8_t* like_frame, uint16_t udp_port, uint8_t wire_tos,
                                 unsigned kind, uint64_t nonce) noexcept;
// Turns a hello that a BundleReader has accepted into its answer, in place: it swaps addresses and ports, and keeps the
// nonce. Returns its length.
[[nodiscard]] size_t answer_hello(uint8_t* frame, const PacketView& view) noexcept;

}  // namespace gradlane::accel
