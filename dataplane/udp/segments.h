// segments.h - packets that are longer than a datagram, and go in several (worker thread only; no DPDK)
//
// A *segment* is a datagram with a header and a part of a packet. All parts have the same length, except the last one,
// which may be shorter:
//
//   0-1  magic     0x5347: the bytes 47 53, "GS"
//    2   bits 0-5  index of the segment in its packet
//        bit 6     it is the last one; in a report: the packet is overdue
//        bit 7     this is a report, see below
//    3   session   low byte of the packet's session
//   4-7  sequence  of the packet
//
// Session and sequence name the packet in all of its transmissions. So a receiver can combine segments of different
// transmissions.
//
// The receiver *reports* which segments of an incomplete packet have arrived: a header, and 64 bits, of which bit i
// stands for segment i. It does so when a later packet begins, and when the packet is *overdue*: no new segment of it
// has come for a while. The sender then sends the missing segments, and segment 0, because it has the new link header.
// Without a new stamp in it, the time that losses take would count as round-trip time.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "collectives/wire.h"

namespace gradlane {

// The header of a segment or report.
struct SegmentHeader {
  uint32_t sequence = 0;
  uint8_t session = 0;
  uint8_t index = 0;
  bool last = false;
  bool report = false;
  bool valid = true;

  [[nodiscard]] bool same_packet(const SegmentHeader& other) const noexcept {
    return sequence == other.sequence && session == other.session;
  }
};

[[nodiscard]] constexpr uint64_t pack(const SegmentHeader& it) noexcept {
  return kSegmentMagic | uint64_t{it.index} << 16 | uint64_t{it.last} << 22 | uint64_t{it.report} << 23 |
         uint64_t{it.session} << 24 | uint64_t{it.sequence} << 32;
}
// Returns whether a datagram, of which two bytes can be read, claims to be a segment or a report.
[[nodiscard]] inline bool is_segment(const uint8_t* datagram) noexcept {
  return load<uint16_t>(datagram) == kSegmentMagic;
}
[[nodiscard]] constexpr SegmentHeader unpack_segment(uint64_t word) noexcept {
  return {.sequence = static_cast<uint32_t>(word >> 32),
          .session = static_cast<uint8_t>(word >> 24),
          .index = static_cast<uint8_t>(word >> 16 & 0x3f),
          .last = (word >> 22 & 1) != 0,
          .report = (word >> 23 & 1) != 0,
          .valid = (word & 0xffff) == kSegmentMagic};
}
// Returns the header of a packet's first segment. `packet` points to its link header.
[[nodiscard]] inline SegmentHeader first_segment(const uint8_t* packet) noexcept {
  return {.sequence = load<uint32_t>(packet + offsetof(LinkHeader, sequence)),
          .session = packet[offsetof(LinkHeader, session)]};
}

// Sizes by which long packets are split.
struct SegmentSizes {
  size_t part = 0;   // bytes of a packet in each of its segments but the last; 0: no packet is split
  size_t count = 1;  // segments of the longest packet: 31 for the smallest MTU

  [[nodiscard]] size_t packet_bytes() const noexcept { return part * count; }
  [[nodiscard]] size_t datagram_bytes() const noexcept { return part + kSegmentHeader; }
  // Returns the number of segments of a packet.
  [[nodiscard]] size_t count_for(size_t bytes) const noexcept { return (bytes + part - 1) / part; }
  // Returns whether a segment with this header may have `bytes` bytes of its packet.
  [[nodiscard]] bool is_valid(const SegmentHeader& it, size_t bytes) const noexcept {
    if (it.last) return it.index < count && bytes != 0 && bytes <= part;
    return it.index + 1U < count && bytes == part;
  }
};

// A packet of which some segments have arrived.
struct PartialPacket {
  uint64_t from = 0;        // its sender
  SegmentHeader name{};     // its sequence and session
  void* buffer = nullptr;   // for the owner; null: this entry is free
  uint8_t* data = nullptr;  // where the packet begins in the buffer, which has room for the longest packet
  uint64_t arrived = 0;
  uint64_t reported = 0;  // `arrived` as it was reported
  uint64_t looked = 0;    // `arrived` when a look for overdue packets found a change
  uint8_t looks = 0;      // looks since then, up to kMostLooks
  uint8_t tos = 0;        // of its first datagram
  uint8_t segments = 0;   // 0: the last one has not arrived
  size_t bytes = 0;       // of the packet; 0: not known

  // Adds a segment with these bytes of the packet. SegmentSizes::is_valid() must be true.
  void add(const SegmentHeader& segment, std::span<const uint8_t> part, const SegmentSizes& sizes) noexcept {
    std::memcpy(data + segment.index * sizes.part, part.data(), part.size());
    record(segment, part.size(), sizes);
  }
  // Records a segment with `part` bytes of the packet, which lie where they belong.
  void record(const SegmentHeader& segment, size_t part, const SegmentSizes& sizes) noexcept {
    arrived |= uint64_t{1} << segment.index;
    if (!segment.last) return;
    segments = static_cast<uint8_t>(segment.index + 1);
    bytes = segment.index * sizes.part + part;
  }
  // Returns whether the packet is complete. `arrived` may have more segments, of a longer packet that had this name in
  // an earlier session.
  [[nodiscard]] bool complete() const noexcept {
    return segments != 0 && static_cast<unsigned>(std::countr_one(arrived)) >= segments;
  }
};

// Entries of the tables below. Packets of a sender that follow one another have different entries.
inline constexpr size_t kSegmentEntries = 128;
[[nodiscard]] constexpr size_t segment_entry(uint64_t sender, uint32_t sequence) noexcept {
  return (static_cast<uint32_t>(sender * 0x9e3779b97f4a7c15U >> 32) + sequence) % kSegmentEntries;
}

// The incomplete packets of one socket, in a fixed table. A new packet replaces the one in its entry. The replaced
// packet arrives only when the link sends all of it again.
class PartialPackets {
 public:
  // Returns the packet with this name; null if no segment of it is here.
  [[nodiscard]] PartialPacket* find(uint64_t from, const SegmentHeader& name) noexcept {
    PartialPacket& it = entries_[segment_entry(from, name.sequence)];
    return it.buffer != nullptr && it.from == from && it.name.same_packet(name) ? &it : nullptr;
  }
  // Adds a packet that find() does not find. `replaced` becomes the buffer of the packet that was in its entry, or
  // null.
  [[nodiscard]] PartialPacket& begin(const PartialPacket& packet, void*& replaced) noexcept {
    PartialPacket& it = entries_[segment_entry(packet.from, packet.name.sequence)];
    replaced = it.buffer;
    if (replaced == nullptr) ++open_;
    it = packet;
    return it;
  }
  // Removes a packet. Its buffer belongs to the caller.
  void end(PartialPacket& it) noexcept {
    --open_;
    it = {};
  }
  // Returns an incomplete packet up to kBack sequence numbers before this one of which segments have arrived since its
  // last report; null: there is none.
  [[nodiscard]] PartialPacket* unreported_before(uint64_t from, SegmentHeader name) noexcept {
    if (open_ == 0) return nullptr;
    for (unsigned back = 0; back < kBack; ++back) {
      --name.sequence;
      PartialPacket* const it = find(from, name);
      if (it != nullptr && it->arrived != it->reported) return it;
    }
    return nullptr;
  }
  [[nodiscard]] bool empty() const noexcept { return open_ == 0; }
  // Looks for overdue packets, and calls report(PartialPacket&) for each. `looks` of a packet counts the looks since
  // its latest new segment. The packet is overdue at the first of them, and again at the second, fourth, ..., because
  // reports and segments can get lost. It is reported no more after kMostLooks. Returns whether later looks can
  // find any.
  template <typename Report>
  [[nodiscard]] bool look(Report report) noexcept {
    bool more = false;
    for (PartialPacket& it : entries_) {
      if (it.buffer == nullptr) continue;
      if (it.arrived != it.looked) {
        it.looked = it.arrived;
        it.looks = 0;
      } else if (it.looks != kMostLooks && std::has_single_bit(++it.looks)) {
        report(it);
      }
      more |= it.looks != kMostLooks;
    }
    return more;
  }
  // All entries, also free ones.
  [[nodiscard]] std::span<PartialPacket> all() noexcept { return entries_; }

 private:
  static constexpr unsigned kBack = 8;
  static constexpr uint8_t kMostLooks = 128;

  std::array<PartialPacket, kSegmentEntries> entries_{};
  size_t open_ = 0;
};

// This class holds the reports of neighbours. They are hints: a packet whose report got lost goes as a whole, and a
// forged report only delays a packet.
class SegmentReports {
 public:
  void add(uint64_t neighbour, const SegmentHeader& name, uint64_t arrived) noexcept {
    any_ = true;
    entries_[segment_entry(neighbour, name.sequence)] = {neighbour, name, arrived, 0};
  }
  // Returns which segments of a packet the neighbour has reported, as bits. A report is good for kMostUses calls, so a
  // wrong one does not delay its packet for long.
  [[nodiscard]] uint64_t take_arrived(uint64_t neighbour, const SegmentHeader& name) noexcept {
    if (!any_) return 0;
    Report& it = entries_[segment_entry(neighbour, name.sequence)];
    const bool found = it.neighbour == neighbour && it.name.same_packet(name) && it.uses < kMostUses;
    if (!found) return 0;
    ++it.uses;
    return it.arrived;
  }

 private:
  static constexpr unsigned kMostUses = 2;

  struct Report {
    uint64_t neighbour = 0;
    SegmentHeader name{};
    uint64_t arrived = 0;
    unsigned uses = kMostUses;
  };

  std::array<Report, kSegmentEntries> entries_{};
  bool any_ = false;
};

}  // namespace gradlane
