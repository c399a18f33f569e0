// votes_layout.h - records of blocks of votes (small integers times a scale, in bit planes); included by the kernels of
// every instruction set, and by rows/votes.h
//
//     head, 16 bits | planes of c, lowest first | planes of codes, if there are any
//
// The code is in an unnamed namespace; layout.h says why.
#pragma once

#include <bit>

#include "compress/layout.h"

namespace gradlane {
namespace {

constexpr size_t kVoteFloats = 256;  // floats of a record; the last one may be shorter
constexpr size_t kHeadBytes = 2;
constexpr unsigned kMostVotes = 256;  // largest magnitude of a sum; larger sums are clipped to it
constexpr unsigned kRangeBits = 0x3ff;
constexpr unsigned kSingleBit = 0x4000;   // values are c - m; without it they are 2 c - m
constexpr unsigned kSpecialBit = 0x8000;  // codes follow: 0 finite, 1 Inf, 2 -Inf, 3 NaN
constexpr size_t kCodePlanes = 2;

// The head of a record.
struct VoteHead {
  unsigned range = 0;  // m, the range
  bool single = false;
  bool special = false;

  [[nodiscard]] constexpr size_t planes() const {
    return static_cast<size_t>(std::bit_width(single ? 2 * range : range));
  }
  // Returns the bytes of a record of `floats` floats.
  [[nodiscard]] constexpr size_t bytes(size_t floats) const {
    return kHeadBytes + (planes() + (special ? kCodePlanes : 0)) * (floats / 8 + (floats % 8 != 0 ? 1 : 0));
  }

  // Returns whether the planes could hold values above kMostVotes. No encoder writes such values, but decoders clip
  // them.
  [[nodiscard]] constexpr bool exceeds() const {
    const size_t most = (size_t{1} << planes()) - 1;
    return (single ? most : 2 * most) > range + kMostVotes;
  }

  static VoteHead load(const uint8_t* at) {
    const auto word = static_cast<unsigned>(at[0] | at[1] << 8);
    return {word & kRangeBits, (word & kSingleBit) != 0, (word & kSpecialBit) != 0};
  }
  void store(uint8_t* at) const {
    const unsigned word = range | (single ? kSingleBit : 0) | (special ? kSpecialBit : 0);
    at[0] = static_cast<uint8_t>(word);
    at[1] = static_cast<uint8_t>(word >> 8);
  }
};

// Reads the head of the record at `at`, of `floats` floats. The whole record must lie before `end`.
inline Status open_votes(const uint8_t* at, const uint8_t* end, size_t floats, VoteHead& head) {
  if (end - at < static_cast<ptrdiff_t>(kHeadBytes)) return Status::kShort;
  constexpr unsigned kHeadBits = (kRangeBits | kSingleBit | kSpecialBit) >> 8;
  head = VoteHead::load(at);
  if (head.range > kMostVotes || (at[1] & ~kHeadBits) != 0) return Status::kBadEscape;
  return static_cast<size_t>(end - at) < head.bytes(floats) ? Status::kShort : Status::kOk;
}

constexpr size_t vote_records(size_t floats) { return floats / kVoteFloats + (floats % kVoteFloats != 0 ? 1 : 0); }

// Return the bytes of the shortest block, which has only zeros, and of the longest block, which has values up to
// kMostVotes, and Inf or NaN.
constexpr size_t votes_least_bytes(size_t floats) { return vote_records(floats) * kHeadBytes; }
constexpr size_t votes_max_bytes(size_t floats) {
  constexpr VoteHead kLongest{kMostVotes, true, true};
  const size_t rest = floats % kVoteFloats;
  return floats / kVoteFloats * kLongest.bytes(kVoteFloats) + (rest == 0 ? 0 : kLongest.bytes(rest));
}

}  // namespace
}  // namespace gradlane
