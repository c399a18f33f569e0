// chunks.h - entry points of codecs with a scale for each chunk of floats and codes of one width; included by the
// kernels of every instruction set
//
// A codec C describes the header of a chunk, which is kHeads floats:
// - `static unsigned bits(params)` returns the bits of a code, 1 to 8.
// - `Measure` scans a chunk by calls of `see(x, count)`: the first `count` floats of x belong to the chunk, and the
//   others are 0. `heads(params, floats, heads)` then makes the header, which is finite if the floats are.
// - `C(params, heads)` makes an object. Its `code(x)` sets only the low bits(params) bits. Its `value(code)` is a float
//   for any header; it is Inf or NaN only for headers that no encoder makes.
// ChunkPasses does the rest, which is the same for all codecs: Inf and NaN, cuts of runs, and residuals.
//
// The code is in an unnamed namespace; layout.h says why.
#pragma once

#include "compress/chunk_layout.h"
#include "compress/kit/operators.h"

namespace gradlane {
namespace {

// ---- Scales

constexpr float kLeastStep = 0x1p-126F;
constexpr float kHuge = 0x1p124F;

// Returns the step that divides the range up to `largest` into `steps` steps. A step that would be denormal is 0. Near
// the end of the range of floats a step is slightly smaller, so that no value becomes Inf.
inline float step_of(float largest, float steps) {
  const float step = largest * (1.0F / steps) * (largest < kHuge ? 1.0F : 1.0F - 0x1p-20F);
  return step < kLeastStep ? 0.0F : step;
}
inline float per_step(float step) { return step == 0 ? 0.0F : 1.0F / step; }

// Returns the low bytes of the nearest integers, ties to even. v must be within +-2^22.
GRADLANE_INLINE Words nearest_byte(const Floats& v) { return bits_of(v + all(0x1.8p23F)) & all(0xffU); }

// Measures the largest magnitude.
struct Largest {
  GRADLANE_INLINE void see(const Floats& x, size_t) { largest = upper(largest, abs(x)); }

  Floats largest = all(0.0F);
};

// ---- Packing of codes, which have a byte each when unpacked

// Packs eight codes into as many bytes as a code has bits, and unpacks them. It joins codes to pairs, pairs to fours,
// and the two fours.
struct Squeeze {
  explicit Squeeze(unsigned of_bits)
      : bits(of_bits),
        ones(0x0001000100010001 * ((uint64_t{1} << of_bits) - 1)),
        twos(0x0000000100000001 * ((uint64_t{1} << 2 * of_bits) - 1)),
        fours((uint64_t{1} << 4 * of_bits) - 1) {}

  [[nodiscard]] GRADLANE_INLINE uint64_t together(uint64_t codes) const {
    codes = (codes & ones) | (codes >> (8 - bits) & ones << bits);
    codes = (codes & twos) | (codes >> (16 - 2 * bits) & twos << 2 * bits);
    return (codes & fours) | (codes >> (32 - 4 * bits) & fours << 4 * bits);
  }
  // Unpacks eight codes. Bits above those of the eight codes may have any value.
  [[nodiscard]] GRADLANE_INLINE uint64_t apart(uint64_t codes) const {
    codes = (codes & fours) | (codes << (32 - 4 * bits) & fours << 32);
    codes = (codes & twos) | (codes << (16 - 2 * bits) & twos << 16);
    return (codes & ones) | (codes << (8 - bits) & ones << 8);
  }

  unsigned bits;
  uint64_t ones;
  uint64_t twos;
  uint64_t fours;
};

constexpr size_t kEight = 8;  // number of codes that are packed at a time
// A byte for each code of a chunk. Functions may read and write kBehind bytes more.
constexpr size_t kBehind = 64;
struct ChunkCodes {
  alignas(64) uint8_t bytes[kMaxGranule + kBehind];
};

using Pairs = hn::CappedTag<uint16_t, 2 * kLanes>;
constexpr size_t kPairs = hn::MaxLanes(Pairs());

// Packs each two codes of `bits` bits, which have a byte each, into one byte: a code of twice as many bits.
// unpack_pairs() reverses this.
GRADLANE_INLINE void pack_pairs(unsigned bits, ChunkCodes& codes, size_t floats) {
  const hn::RebindToSigned<Pairs> words;
  for (size_t i = 0; i < floats; i += 2 * kPairs) {
    const auto two = hn::Load(Pairs(), reinterpret_cast<const uint16_t*>(codes.bytes + i));
    const auto one = hn::And(hn::Or(two, hn::ShiftRightSame(two, static_cast<int>(8 - bits))), hn::Set(Pairs(), 0xff));
    const hn::Rebind<uint8_t, Pairs> bytes;
    hn::StoreU(hn::DemoteTo(bytes, hn::BitCast(words, one)), bytes, codes.bytes + i / 2);
  }
}
GRADLANE_INLINE void unpack_pairs(unsigned bits, const ChunkCodes& from, size_t floats, ChunkCodes& to) {
  const auto only_codes = hn::Set(Pairs(), static_cast<uint16_t>(0x0101 * ((1U << bits) - 1)));
  for (size_t i = 0; i < floats; i += 2 * kPairs) {
    const auto one = hn::PromoteTo(Pairs(), hn::LoadU(hn::Rebind<uint8_t, Pairs>(), from.bytes + i / 2));
    const auto two = hn::And(hn::Or(one, hn::ShiftLeftSame(one, static_cast<int>(8 - bits))), only_codes);
    hn::Store(two, Pairs(), reinterpret_cast<uint16_t*>(to.bytes + i));
  }
}

// Packs all codes of a chunk. There must be zeros after the codes.
GRADLANE_INLINE void pack_codes(unsigned bits, ChunkCodes& codes, size_t floats, uint8_t* out) {
  const size_t bytes = code_bytes(floats, bits);
  floats = (floats + kEight - 1) / kEight * kEight;
  if ((bits & (bits - 1)) == 0) {
    for (; bits < 8; bits *= 2, floats /= 2) pack_pairs(bits, codes, floats);
  } else {
    const Squeeze squeeze(bits);
    uint8_t* at = codes.bytes;
    for (size_t i = 0; i < floats; i += kEight, at += bits) {
      uint64_t word;
      std::memcpy(&word, codes.bytes + i, sizeof word);
      word = squeeze.together(word);
      std::memcpy(at, &word, sizeof word);
    }
  }
  std::memcpy(out, codes.bytes, bytes);
}

GRADLANE_INLINE void unpack_codes(unsigned bits, const uint8_t* in, size_t floats, ChunkCodes& codes) {
  ChunkCodes packed;
  const size_t bytes = code_bytes(floats, bits);
  floats = (floats + kEight - 1) / kEight * kEight;
  const bool halves = bits == 4 || bits == 1;  // these take one or three calls of unpack_pairs()
  uint8_t* const to = bits == 8 || bits == 2 ? codes.bytes : packed.bytes;
  std::memcpy(to, in, bytes);
  std::memset(to + bytes, 0, kBehind);
  if (bits == 8) return;
  if (halves) {
    unpack_pairs(4, packed, bits == 4 ? floats : floats / 4, codes);
    if (bits == 4) return;
    unpack_pairs(2, codes, floats / 2, packed);
    unpack_pairs(1, packed, floats, codes);
  } else if (bits == 2) {
    unpack_pairs(4, codes, floats / 2, packed);
    unpack_pairs(2, packed, floats, codes);
  } else {
    const Squeeze squeeze(bits);
    const uint8_t* from = packed.bytes;
    for (size_t i = 0; i < floats; i += kEight, from += bits) {
      uint64_t word;
      std::memcpy(&word, from, sizeof word);
      word = squeeze.apart(word);
      std::memcpy(codes.bytes + i, &word, sizeof word);
    }
  }
}

// ---- Inf and NaN

GRADLANE_INLINE Words special_code(const Floats& v) {
  const Words sign = shifted_right<31>(bits_of(v)) + all(1U);
  return choose(is_finite(v), all(0U), choose(v == v, sign, all(3U)));
}
GRADLANE_INLINE Floats special_value(const Words& byte) {
  const Words code = byte & all(3U);
  const Words infinite = choose(code == all(1U), all(0x7f800000U), all(0xff800000U));
  return floats_of(choose(code == all(0U), code, choose(code == all(3U), all(0x7fc00000U), infinite)));
}

// ---- Chunks

template <class C>
struct ChunkPasses {
  static constexpr size_t kHeadBytes = C::kHeads * sizeof(float);

  static EncodeResult encode(const CodecParams& params, const EncodeJob& job) noexcept {
    const auto next = [&](size_t i, size_t count) GRADLANE_INLINE_LAMBDA {
      const Floats in = load(job.in + i, count);
      return job.residual == nullptr ? in : add(in, load(job.residual + i, count));
    };
    return write(params, job.floats, job.residual, job.out, job.room, next);
  }

  // Checks that the block has the length that the headers of its chunks announce.
  static Status validate(const CodecParams& params, const uint8_t* block, size_t bytes, size_t floats) noexcept {
    for (size_t done = 0; done < floats; done += params.arguments.extra) {
      const size_t length = chunk_bytes(params, block, bytes, smaller(floats - done, params.arguments.extra));
      if (length > bytes) return Status::kShort;
      block += length;
      bytes -= length;
    }
    return compare_length(bytes, 0);
  }

  template <bool kAdd>
  static Status decode(const CodecParams& params, const uint8_t* block, size_t bytes, float* out,
                       size_t floats) noexcept {
    for (size_t done = 0; done < floats; done += params.arguments.extra) {
      const size_t here = smaller(floats - done, params.arguments.extra);
      const size_t length = chunk_bytes(params, block, bytes, here);
      if (length > bytes) return Status::kShort;
      float* const to = out + done;
      read(params, block, here, [to](size_t i, size_t count, const Floats& v) GRADLANE_INLINE_LAMBDA {
        store(kAdd ? add(load(to + i, count), v) : v, to + i, count);
      });
      block += length;
      bytes -= length;
    }
    return compare_length(bytes, 0);
  }

  // Encodes the sum of the block, the local floats and their residuals. The new residuals are what rounding this sum
  // has lost.
  static HopResult hop(const CodecParams& params, const HopJob& job) noexcept {
    const Status status = validate(params, job.block, job.block_bytes, job.floats);
    if (status != Status::kOk) return {status, 0, 0};
    const uint8_t* block = job.block;
    const uint8_t* const end = block + job.block_bytes;
    const auto take = [&](size_t floats, auto put) GRADLANE_INLINE_LAMBDA {
      read(params, block, floats, put);
      block += chunk_bytes(params, block, static_cast<size_t>(end - block), floats);
    };
    const size_t chunk = params.arguments.extra;
    for (size_t done = 0; done < job.first; done += chunk) {
      take(smaller(job.floats - done, chunk), [](size_t, size_t, const Floats&) {});
    }
    float values[kMaxGranule + kLanes];
    const auto next = [&](size_t i, size_t count) GRADLANE_INLINE_LAMBDA {
      if (i % chunk == 0) {
        take(smaller(job.floats - job.first - i, chunk),
             [&](size_t k, size_t, const Floats& v) GRADLANE_INLINE_LAMBDA { store(v, values + k); });
      }
      Floats x = load(job.local + job.first + i, count);
      if (job.residual != nullptr) x = add(x, load(job.residual + job.first + i, count));
      return add(load(values + i % chunk, count), x);
    };
    float* const residual = job.residual == nullptr ? nullptr : job.residual + job.first;
    const EncodeResult written = write(params, job.floats - job.first, residual, job.out, job.room, next);
    return {Status::kOk, written.floats, written.bytes};
  }

  static constexpr CodecOps ops() { return {encode, validate, decode<false>, decode<true>, hop}; }

 private:
  static bool escaped(const uint8_t* chunk) {
    float head;
    std::memcpy(&head, chunk, sizeof head);
    return head != head;
  }

  // Returns the bytes of a chunk, or more than `bytes` if the header is incomplete.
  static size_t chunk_bytes(const CodecParams& params, const uint8_t* chunk, size_t bytes, size_t floats) {
    if (bytes < kHeadBytes) return kHeadBytes;
    const unsigned bits = C::bits(params);
    return kHeadBytes + code_bytes(floats, escaped(chunk) ? escape_bits(bits) : bits);
  }

  // Writes as many chunks as fit. next(i, count) returns `count` floats from i on, and 0 in the other lanes.
  template <class Next>
  GRADLANE_INLINE static EncodeResult write(const CodecParams& params, size_t floats, float* residual, uint8_t* out,
                                            size_t room, Next next) {
    const size_t chunk = params.arguments.extra;
    if (room < chunks_bytes(chunk, C::kHeads, escape_bits(C::bits(params)), floats)) room = smaller(room, kMaxPacket);
    EncodeResult all_of{0, 0};
    while (all_of.floats < floats) {
      const size_t from = all_of.floats;
      const size_t here = smaller(floats - from, chunk);
      const size_t bytes = write_chunk(
          params, here, residual == nullptr ? nullptr : residual + from, out + all_of.bytes, room - all_of.bytes,
          [&](size_t i, size_t count) GRADLANE_INLINE_LAMBDA { return next(from + i, count); });
      if (bytes == 0) break;
      all_of.floats += here;
      all_of.bytes += bytes;
    }
    return all_of;
  }

  // Writes one chunk and returns its bytes. If the chunk does not fit, it returns 0 and does not change the residuals.
  template <class Next>
  GRADLANE_INLINE static size_t write_chunk(const CodecParams& params, size_t floats, float* residual, uint8_t* out,
                                            size_t room, Next next) {
    float x[kMaxGranule];
    Words odd = all(0U);  // v - v is 0 if v is finite
    typename C::Measure measure;
    each(floats, [&](size_t i, size_t count) GRADLANE_INLINE_LAMBDA {
      const Floats v = next(i, count);
      store(v, x + i);
      measure.see(v, count);
      odd = odd | bits_of(v - v);
    });
    const bool finite = mask_bits(odd == all(0U)) == (1U << kLanes) - 1;
    const unsigned bits = finite ? C::bits(params) : escape_bits(C::bits(params));
    const size_t bytes = kHeadBytes + code_bytes(floats, bits);
    if (bytes > room) return 0;
    float heads[C::kHeads] = {__builtin_nanf("")};
    if (finite) measure.heads(params, floats, heads);
    std::memcpy(out, heads, kHeadBytes);
    ChunkCodes codes;
    const auto code_all = [&](auto code_of, auto left_of) GRADLANE_INLINE_LAMBDA {
      each(floats, [&](size_t i, size_t count) GRADLANE_INLINE_LAMBDA {
        const Floats v = load(x + i);
        const Words code = code_of(v);
        concat(code, codes.bytes + i);
        if (residual != nullptr) store(left_of(v, code), residual + i, count);
      });
    };
    const C scale(params, heads);
    if (finite) [[likely]] {
      code_all([&](const Floats& v) GRADLANE_INLINE_LAMBDA { return scale.code(v); },
               [&](const Floats& v, const Words& code) GRADLANE_INLINE_LAMBDA { return v - scale.value(code); });
    } else {
      code_all([](const Floats& v) GRADLANE_INLINE_LAMBDA { return special_code(v); },
               [](const Floats& v, const Words&) GRADLANE_INLINE_LAMBDA { return only(is_finite(v), v); });
    }
    std::memset(codes.bytes + floats, 0, kBehind);
    pack_codes(bits, codes, floats, out + kHeadBytes);
    return bytes;
  }

  // Calls put(i, count, values) for all floats of a chunk, which must be complete.
  template <class Put>
  GRADLANE_INLINE static void read(const CodecParams& params, const uint8_t* chunk, size_t floats, Put put) {
    float heads[C::kHeads];
    std::memcpy(heads, chunk, kHeadBytes);
    const bool special = escaped(chunk);
    const unsigned bits = C::bits(params);
    ChunkCodes codes;
    unpack_codes(special ? escape_bits(bits) : bits, chunk + kHeadBytes, floats, codes);
    const C scale(params, heads);
    each(floats, [&](size_t i, size_t count) GRADLANE_INLINE_LAMBDA {
      const Words code = extract(codes.bytes + i);
      put(i, count, special ? special_value(code) : scale.value(code));
    });
  }
};

}  // namespace
}  // namespace gradlane
