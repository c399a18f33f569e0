// vote_record.h - one record of votes, 256 small integers that are processed plane by plane; included by the kernels of
// every instruction set that are made with the kit
//
// The code is in an unnamed namespace; layout.h says why.
#pragma once

#include "compress/kit/vectors.h"
#include "compress/votes_layout.h"

namespace gradlane {
namespace {

// Copies at most 32 bytes, like memcpy(), which takes longer for a number that is not constant.
GRADLANE_INLINE void copy_few(uint8_t* to, const uint8_t* from, size_t bytes) {
  const auto both = [&](auto whole) GRADLANE_INLINE_LAMBDA {
    auto last = whole;
    std::memcpy(&whole, from, sizeof whole);
    std::memcpy(&last, from + bytes - sizeof last, sizeof last);
    std::memcpy(to, &whole, sizeof whole);
    std::memcpy(to + bytes - sizeof last, &last, sizeof last);
  };
  if (bytes >= 16) {
    struct Sixteen {
      uint64_t word[2];
    };
    both(Sixteen{});
  } else if (bytes >= 8) {
    both(uint64_t{});
  } else {
    for (size_t i = 0; i < bytes; ++i) to[i] = from[i];
  }
}

// Loads at most eight bytes, lowest first.
GRADLANE_INLINE uint64_t load_few(const uint8_t* from, size_t bytes) {
  const auto both = [&](auto first) GRADLANE_INLINE_LAMBDA {
    auto last = first;
    std::memcpy(&first, from, sizeof first);
    std::memcpy(&last, from + bytes - sizeof last, sizeof last);
    return uint64_t{first} | uint64_t{last} << 8 * (bytes - sizeof last);
  };
  if (bytes == 0) return 0;
  if (bytes >= 8) return both(uint64_t{});
  if (bytes >= 4) return both(uint32_t{});
  if (bytes >= 2) return both(uint16_t{});
  return from[0];
}

// A bit for each float of a record, to be set piece by piece.
struct BitWords {
  uint64_t word[4] = {};

  // Sets sixteen bits from float i on.
  GRADLANE_INLINE void put(size_t i, uint32_t here) { word[i / 64] |= static_cast<uint64_t>(here & 0xffff) << i % 64; }
};

// A bit for each float of a record, to calculate with. It is assembled in registers. If halves of it were stored first,
// loading it would wait until they are in memory.
struct Bits {
  using Words = hn::CappedTag<uint64_t, 4>;
  static constexpr size_t kEach = hn::MaxLanes(Words());
  hn::Vec<Words> part[4 / kEach];

  template <class Word>
  static GRADLANE_INLINE Bits of(Word a, Word b, Word c, Word d) {
    const hn::CappedTag<Word, 4> tag;
    Bits out;
    // The next lines have no hn::, since Highway's scalar namespace lacks these functions: their arguments find them.
    if constexpr (hn::MaxLanes(tag) == 4) {
      const auto low = InterleaveLower(tag, hn::Set(tag, a), hn::Set(tag, b));
      const auto high = InterleaveLower(tag, hn::Set(tag, c), hn::Set(tag, d));
      out.part[0] = ConcatUpperLower(tag, high, low);
    } else {
      const Word word[4] = {a, b, c, d};
      for (size_t k = 0; k < 4 / kEach; ++k) out.part[k] = hn::LoadU(tag, word + k * kEach);
    }
    return out;
  }
  static GRADLANE_INLINE Bits of(const BitWords& w) { return of(w.word[0], w.word[1], w.word[2], w.word[3]); }
  static GRADLANE_INLINE Bits none() { return of<uint64_t>(0, 0, 0, 0); }
  // Returns the bits of the first `floats` floats.
  static Bits first(size_t floats) {
    const auto word = [floats](size_t i) GRADLANE_INLINE_LAMBDA {
      const size_t here = floats <= 64 * i ? 0 : gradlane::smaller(floats - 64 * i, 64);
      return here == 64 ? ~uint64_t{0} : (uint64_t{1} << here) - 1;
    };
    return of(word(0), word(1), word(2), word(3));
  }

  [[nodiscard]] BitWords words() const {
    BitWords out;
    std::memcpy(out.word, part, sizeof out.word);
    return out;
  }

  [[nodiscard]] GRADLANE_INLINE bool any() const {
    auto some = part[0];
    for (size_t k = 1; k < 4 / kEach; ++k) some = hn::Or(some, part[k]);
    return !hn::AllTrue(Words(), hn::Eq(some, hn::Zero(Words())));
  }

  static GRADLANE_INLINE Bits load(const uint8_t* at, size_t floats) {
    if (floats == kVoteFloats) [[likely]] {
      Bits bits;
      std::memcpy(bits.part, at, sizeof bits.part);
      return bits;
    }
    const size_t bytes = (floats + 7) / 8;
    const auto word = [at, bytes](size_t i) GRADLANE_INLINE_LAMBDA {
      return bytes <= 8 * i ? uint64_t{0} : load_few(at + 8 * i, gradlane::smaller(bytes - 8 * i, 8));
    };
    return of(word(0), word(1), word(2), word(3));
  }
  GRADLANE_INLINE void store(uint8_t* at, size_t floats) const {
    if (floats == kVoteFloats) [[likely]] {
      std::memcpy(at, part, sizeof part);
      return;
    }
    copy_few(at, reinterpret_cast<const uint8_t*>(part), (floats + 7) / 8);
  }
};

template <class F>
GRADLANE_INLINE Bits bits_by(F f, const Bits& a, const Bits& b) {
  Bits out;
  for (size_t k = 0; k < 4 / Bits::kEach; ++k) out.part[k] = f(a.part[k], b.part[k]);
  return out;
}
GRADLANE_INLINE Bits operator&(const Bits& a, const Bits& b) {
  return bits_by([](auto x, auto y) GRADLANE_INLINE_LAMBDA { return hn::And(x, y); }, a, b);
}
GRADLANE_INLINE Bits operator|(const Bits& a, const Bits& b) {
  return bits_by([](auto x, auto y) GRADLANE_INLINE_LAMBDA { return hn::Or(x, y); }, a, b);
}
GRADLANE_INLINE Bits operator^(const Bits& a, const Bits& b) {
  return bits_by([](auto x, auto y) GRADLANE_INLINE_LAMBDA { return hn::Xor(x, y); }, a, b);
}
// Returns a without the bits of b.
GRADLANE_INLINE Bits operator-(const Bits& a, const Bits& b) {
  return bits_by([](auto x, auto y) GRADLANE_INLINE_LAMBDA { return hn::AndNot(y, x); }, a, b);
}

// Number of planes for any c with a range of kMostVotes.
constexpr size_t kWidePlanes = 10;

// The votes of one rank: +1, -1, neither (0), or a code.
struct Votes {
  Bits plus, minus;
  Bits code[kCodePlanes];  // low bits, high bits

  [[nodiscard]] GRADLANE_INLINE Bits special() const { return code[0] | code[1]; }
};

// The values of a record: 2 c - m, or c - m, as its head says. A float with a code has c = 0, which has no meaning.
class VoteRecord {
 public:
  // Largest number of planes, including those for the carries of an addition.
  static constexpr size_t kMostPlanes = 13;

  VoteHead head;
  Bits plane[kMostPlanes];
  Bits code[kCodePlanes];

  // Loads a record of a block. open_votes() must have filled in `head`.
  GRADLANE_INLINE void load(const uint8_t* at, size_t floats) {
    const size_t bytes = (floats + 7) / 8;
    at += kHeadBytes;
    count_ = head.planes();
    for (size_t j = 0; j < count_; ++j, at += bytes) plane[j] = Bits::load(at, floats);
    if (!head.special) return;
    for (Bits& bits : code) {
      bits = Bits::load(at, floats);
      at += bytes;
    }
  }

  // Stores the record and returns its bytes. Returns 0 and writes nothing if there are more than `room`.
  GRADLANE_INLINE size_t store(uint8_t* at, size_t floats, size_t room) const {
    const size_t bytes = head.bytes(floats);
    if (bytes > room) return 0;
    head.store(at);
    at += kHeadBytes;
    const size_t each = (floats + 7) / 8;
    for (size_t j = 0; j < head.planes(); ++j, at += each) plane[j].store(at, floats);
    if (!head.special) return bytes;
    for (const Bits& bits : code) {
      bits.store(at, floats);
      at += each;
    }
    return bytes;
  }

  // Makes this the record of one rank's votes. `all` has the bits of all floats of the record.
  GRADLANE_INLINE void set_votes(const Votes& votes, const Bits& all) {
    const Bits some = votes.plus | votes.minus;
    be_special(votes);
    const Bits none = head.special ? all - some - votes.special() : all - some;
    head.single = none.any();
    head.range = some.any() ? 1 : 0;
    if (head.range == 0) head.single = false;
    plane[0] = head.single ? none : votes.plus;
    plane[1] = votes.plus;
  }

  // Adds the votes of one rank.
  GRADLANE_INLINE void add(const Votes& votes, const Bits& all) {
    const Bits some = votes.plus | votes.minus;
    if (!head.special) code[0] = code[1] = Bits::none();
    code[0] = (code[0] & all) | votes.code[0];
    code[1] = (code[1] & all) | votes.code[1];
    const Bits special = code[0] | code[1];
    head.special = special.any();
    const Bits finite = all - special;
    const Bits none = finite - some;
    ++head.range;
    if (!head.single && !none.any()) {
      ripple(0, votes.plus);
    } else {
      if (!head.single) halve_step();
      // c grows by 0, 1 or 2 for a vote of -1, 0 or 1.
      ripple(0, none);
      ripple(1, votes.plus);
    }
    normalize(finite);
  }

  // Copies the codes of `votes` into this record.
  void be_special(const Votes& votes) {
    head.special = votes.special().any();
    if (!head.special) return;
    code[0] = votes.code[0];
    code[1] = votes.code[1];
  }

  // Brings values of any kind to the normal form. They are given as c of kWidePlanes planes, for a range of kMostVotes
  // and step 1.
  void normalize_wide(const Bits& finite) {
    head.range = kMostVotes;
    head.single = true;
    count_ = kWidePlanes;
    normalize(finite);
  }

  // Clips values to kMostVotes, and brings them to the normal form. Only blocks of other encoders have larger values.
  // `there` has a bit for each float that the record has.
  [[gnu::noinline]] void cut_off(const Bits& there) {
    BitWords wide[kWidePlanes];
    for (size_t i = 0; i < kVoteFloats; ++i) {
      constexpr int kMost = kMostVotes;
      const int v = value(i);
      const int c = kMost + (v > kMost ? kMost : v < -kMost ? -kMost : v);
      for (size_t j = 0; j < kWidePlanes; ++j) wide[j].word[i / 64] |= static_cast<uint64_t>(c >> j & 1) << i % 64;
    }
    for (size_t j = 0; j < kWidePlanes; ++j) plane[j] = Bits::of(wide[j]);
    normalize_wide(head.special ? there - (code[0] | code[1]) : there);
  }

  // Returns the value of one float that has no code.
  [[nodiscard]] int value(size_t i) const {
    int c = 0;
    for (size_t j = 0; j < count_; ++j) c |= static_cast<int>(plane[j].words().word[i / 64] >> i % 64 & 1) << j;
    return (head.single ? c : 2 * c) - static_cast<int>(head.range);
  }

 private:
  // Adds `carry` times 2^from to c, which may get another plane.
  GRADLANE_INLINE void ripple(size_t from, Bits carry) {
    if (count_ <= from) {
      while (count_ < from) plane[count_++] = Bits::none();
      plane[count_++] = carry;
      return;
    }
    for (size_t j = from; j < count_; ++j) {
      const Bits next = plane[j] & carry;
      plane[j] = plane[j] ^ carry;
      carry = next;
    }
    if (carry.any()) plane[count_++] = carry;
  }

  // Changes the step from 2 to 1. Values stay the same.
  void halve_step() {
    for (size_t j = count_; j != 0; --j) plane[j] = plane[j - 1];
    plane[0] = Bits::none();
    ++count_;
    head.single = true;
  }

  // The least and the greatest c of some floats.
  struct Ends {
    unsigned least = 0, greatest = 0;
  };
  [[nodiscard]] GRADLANE_INLINE Ends ends(const Bits& those) const {
    Ends ends;
    Bits low = those, high = those;
    for (size_t j = count_; j-- != 0;) {
      const Bits up = high & plane[j], down = low - plane[j];
      if (up.any()) {
        high = up;
        ends.greatest |= 1U << j;
      }
      if (down.any()) {
        low = down;
      } else {
        ends.least |= 1U << j;
      }
    }
    return ends;
  }

  // Adds `number` to all c, and extends them to `planes` planes first. The sums must fit in these planes.
  void shift(int number, size_t planes) {
    for (; count_ < planes; ++count_) plane[count_] = Bits::none();
    if (number == 0) return;
    Bits carry = Bits::none();
    const Bits ones = Bits::first(kVoteFloats);
    const auto addend = static_cast<unsigned>(number);
    for (size_t j = 0; j < planes; ++j) {
      const bool one = (addend >> j & 1) != 0;
      const Bits a = plane[j];
      const Bits differ = a ^ carry;
      plane[j] = one ? ones - differ : differ;
      carry = one ? a | carry : a & carry;
    }
  }

  // Reduces the record to its normal form: the least range, step 2 if that suffices, and c = 0 for floats with a code.
  GRADLANE_INLINE void normalize(const Bits& finite) {
    const auto step = head.single ? 1 : 2;
    const auto range = static_cast<int>(head.range);
    const Ends found = ends(finite);
    const auto most = static_cast<int>(found.greatest), least = static_cast<int>(found.least);
    int reach = step * most - range;
    if (range - step * least > reach) reach = range - step * least;
    if (!finite.any()) reach = 0;
    if (reach > static_cast<int>(kMostVotes)) [[unlikely]]
      return cut_off(finite);
    const bool halve = head.single && (!(plane[0] & finite).any() || !(finite - plane[0]).any());
    if (halve) head.single = false;
    head.range = static_cast<unsigned>(reach);
    const size_t planes = head.planes();
    if (step == 1) {
      shift(reach - range, halve ? planes + 1 : planes);
    } else {
      shift((reach - range) / 2, planes);
    }
    for (size_t j = 0; j < planes; ++j) plane[j] = plane[halve ? j + 1 : j] & finite;
    count_ = planes;
  }

  size_t count_ = 0;  // number of planes of c
};

}  // namespace
}  // namespace gradlane
