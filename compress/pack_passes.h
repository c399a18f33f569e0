// pack_passes.h - entry points of codec pack, around the kernels of an instruction set; included by the kernels of
// every instruction set
//
// docs/codec-format.md, "Packed floats", has the format. The code is in an unnamed namespace; layout.h says why.
//
// Kernels work on words: the elements of all types have their sign in bit 31, their exponent from bit 23 on, and their
// mantissa from bit 22 down. All other bits of a word do not count.
#pragma once

#include "compress/layout.h"

namespace gradlane {
namespace {

// The head of a group: k in the lower bits, and flags, or one of the two last values alone.
constexpr unsigned kPackBits = 0x07;
constexpr unsigned kPackMasked = 0x08;  // only floats with a bit in a mask travel; all others are +0
constexpr unsigned kPackEscape = 0x10;  // code 2^k - 1 is exponent 0
constexpr unsigned kPackPlain = 0x20;
constexpr unsigned kPackZeros = 0x40;

// Space that a kernel may write to when it packs a group, and more than it reads after a group's planes.
constexpr size_t kPackSlack = 192;

// The types of elements: the bytes of one, the planes of the lowest bits of its mantissa, and the bytes of the rest of
// it. Blocks are cut at multiples of kGranule elements.
struct PackFp32 {
  static constexpr size_t kBytes = 4, kLowPlanes = 0, kRest = 3, kGranule = kGroupFloats;
};
struct PackBf16 {
  static constexpr size_t kBytes = 2, kLowPlanes = 0, kRest = 1, kGranule = 2 * kGroupFloats;
};
struct PackFp16 {
  static constexpr size_t kBytes = 2, kLowPlanes = 3, kRest = 1, kGranule = 2 * kGroupFloats;
};

template <class Type>
constexpr size_t pack_max_bytes(size_t floats) {
  return groups_of(floats) + floats * Type::kBytes;
}

// Returns the bytes of a group in which `sent` floats travel, and which is neither plain nor zero.
template <class Type>
constexpr size_t packed_bytes(unsigned head, size_t sent) {
  const size_t planes = (head & kPackBits) + Type::kLowPlanes;
  return 2 + ((head & kPackMasked) != 0 ? 4 : 0) + planes * ((sent + 7) / 8) + Type::kRest * sent;
}

// A group of a block, as its head describes it.
struct PackedGroup {
  unsigned head = 0;
  unsigned base = 0;                // largest exponent
  uint32_t mask = 0;                // floats that travel
  size_t sent = 0;                  // their number
  const uint8_t* planes = nullptr;  // bytes after the head, base and mask
  size_t plane_bytes = 0;           // of each plane
  size_t bytes = 0;                 // of the whole group

  [[nodiscard]] unsigned bits() const { return head & kPackBits; }
};

// Returns the head of a group of m floats, of which `sent` travel. `base` is their largest exponent, `least` their
// least one above 0, and `any_zero` says whether there is an exponent 0.
template <class Type>
GRADLANE_INLINE unsigned pack_head(size_t m, size_t sent, unsigned base, unsigned least, bool any_zero) {
  const bool escape = any_zero && base != 0;
  const unsigned widest = base == 0 ? 0 : base - least + (escape ? 1 : 0);
  const unsigned k = widest == 0 ? 0 : 32 - static_cast<unsigned>(__builtin_clz(widest));
  const unsigned head = k | (sent == m ? 0 : kPackMasked) | (escape ? kPackEscape : 0);
  return k > kPackBits || packed_bytes<Type>(head, sent) > m * Type::kBytes ? kPackPlain : head;
}

// Reads what precedes the planes of a group of m floats. The group must end before `end`.
template <class Type>
GRADLANE_INLINE Status read_group(const uint8_t* at, const uint8_t* end, size_t m, PackedGroup& it) {
  const auto left = static_cast<size_t>(end - at);
  if (left == 0) return Status::kShort;
  it.head = at[0];
  it.mask = m < kGroupFloats ? (uint32_t{1} << m) - 1 : ~uint32_t{0};
  it.sent = m;
  bool tail = false;
  if (it.head < kPackPlain) [[likely]] {
    if ((it.head & (kPackEscape | kPackBits)) == kPackEscape) return Status::kBadEscape;
    const bool masked = (it.head & kPackMasked) != 0;
    const size_t before = masked ? 6 : 2;
    if (left < before) return Status::kShort;
    it.base = at[1];
    if (masked) {
      uint32_t mask;
      std::memcpy(&mask, at + 2, sizeof mask);
      tail = (mask & ~it.mask) != 0;
      it.mask = mask;
      it.sent = static_cast<size_t>(__builtin_popcount(mask));
    }
    it.planes = at + before;
    it.plane_bytes = (it.sent + 7) / 8;
    it.bytes = packed_bytes<Type>(it.head, it.sent);
  } else if (it.head == kPackZeros) {
    it.bytes = 1;
  } else if (it.head == kPackPlain) {
    it.planes = at + 1;
    it.bytes = 1 + m * Type::kBytes;
  } else {
    return Status::kBadEscape;
  }
  if (it.bytes > left) return Status::kShort;
  return tail ? Status::kBadTail : Status::kOk;
}

// `Kernels` has the passes of an instruction set for the type `Kernels::Type`, on `Kernels::Floats`, the words of a
// group:
// - load(p, m) and store(p, m, x) move the first m floats of a group. Others are loaded as +0.
// - add(a, b) is a sum, rounded to the type, in which all NaNs are equal (see Codec).
// - pack(x, m, out) writes a group and returns its bytes. It may overwrite kPackSlack bytes.
// - unpack(group, m, end) returns the floats of a group that is valid. It reads nothing from `end` on.
template <class Kernels>
struct PackPasses {
  using Floats = typename Kernels::Floats;
  using Type = typename Kernels::Type;

  static EncodeResult encode(const CodecParams&, const EncodeJob& job) noexcept {
    return write(job.floats, job.out, job.room, [&](size_t at, size_t m, Floats& x) GRADLANE_INLINE_LAMBDA {
      x = Kernels::load(place(job.in, at), m);
      return true;
    });
  }

  static Status validate(const CodecParams&, const uint8_t* block, size_t bytes, size_t floats) noexcept {
    Reader reader{block, block + bytes};
    if (const Status status = reader.skip(floats); status != Status::kOk) return status;
    return reader.ends();
  }

  template <bool kAdd>
  static Status decode(const CodecParams&, const uint8_t* block, size_t bytes, float* out, size_t floats) noexcept {
    Reader reader{block, block + bytes};
    for (size_t at = 0; at < floats; at += kGroupFloats) {
      const size_t m = smaller(floats - at, kGroupFloats);
      Floats x;
      if (const Status status = reader.next(m, x); status != Status::kOk) return status;
      if constexpr (kAdd) x = Kernels::add(Kernels::load(place(out, at), m), x);
      Kernels::store(place(out, at), m, x);
    }
    return reader.ends();
  }

  static HopResult hop(const CodecParams&, const HopJob& job) noexcept {
    Reader reader{job.block, job.block + job.block_bytes};
    Status status = reader.skip(job.first);
    if (status != Status::kOk) return {status, 0, 0};
    const size_t floats = job.floats - job.first;
    const auto written = write(floats, job.out, job.room, [&](size_t at, size_t m, Floats& x) GRADLANE_INLINE_LAMBDA {
      status = reader.next(m, x);
      if (status != Status::kOk) return false;
      x = Kernels::add(x, Kernels::load(place(job.local, job.first + at), m));
      return true;
    });
    if (status == Status::kOk && written.floats == floats) status = reader.ends();
    if (status != Status::kOk) return {status, 0, 0};
    return {status, written.floats, written.bytes};
  }

  static constexpr CodecOps ops() { return {encode, validate, decode<false>, decode<true>, hop}; }

 private:
  // Return the address of an element. Elements of any type are passed as floats.
  static GRADLANE_INLINE const uint8_t* place(const float* of, size_t at) {
    return reinterpret_cast<const uint8_t*>(of) + at * Type::kBytes;
  }
  static GRADLANE_INLINE uint8_t* place(float* of, size_t at) {
    return reinterpret_cast<uint8_t*>(of) + at * Type::kBytes;
  }

  // A place in a block that is read.
  struct Reader {
    const uint8_t* at;
    const uint8_t* end;

    GRADLANE_INLINE Status next(size_t m, Floats& x) {
      PackedGroup group;
      if (const Status status = read_group<Type>(at, end, m, group); status != Status::kOk) return status;
      x = Kernels::unpack(group, m, end);
      at += group.bytes;
      return Status::kOk;
    }
    Status skip(size_t floats) {
      for (size_t done = 0; done < floats; done += kGroupFloats) {
        PackedGroup group;
        const Status status = read_group<Type>(at, end, smaller(floats - done, kGroupFloats), group);
        if (status != Status::kOk) return status;
        at += group.bytes;
      }
      return Status::kOk;
    }
    [[nodiscard]] Status ends() const { return at == end ? Status::kOk : Status::kLong; }
  };

  // Packs groups that next(at, m, x) returns, until it returns false or the room is full.
  template <class Next>
  static GRADLANE_INLINE EncodeResult write(size_t floats, uint8_t* out, size_t room, Next next) {
    if (room < pack_max_bytes<Type>(floats)) room = smaller(room, kMaxPacket);
    size_t bytes = 0;
    EncodeResult cut{0, 0};
    for (size_t at = 0; at < floats; at += kGroupFloats) {
      if (at % Type::kGranule == 0) cut = {at, bytes};
      const size_t m = smaller(floats - at, kGroupFloats);
      Floats x;
      if (!next(at, m, x)) return cut;
      if (room - bytes >= kPackSlack) [[likely]] {
        bytes += Kernels::pack(x, m, out + bytes);
      } else {
        uint8_t last[kPackSlack];
        const size_t more = Kernels::pack(x, m, last);
        if (more > room - bytes) return cut;
        std::memcpy(out + bytes, last, more);
        bytes += more;
      }
    }
    return {floats, bytes};
  }
};

}  // namespace
}  // namespace gradlane
