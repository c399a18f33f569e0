// tagged.h - tagged codecs, one float at a time: see TaggedPasses; included by the scalar kernels of each of them
//
// The code is in an unnamed namespace; layout.h says why.
#pragma once

#include "compress/passes.h"
#include "compress/scalar/elements.h"

namespace gradlane {
namespace {

// A float of a tagged codec: its tag, 0 to 3, and 0, 1, 2 or 4 bytes of payload in the low bits.
struct Tagged {
  unsigned tag;
  uint32_t payload;
};

// Returns the multiple of the step s nearest to f, ties to even. Returns f itself if all floats of its size are
// multiples of s, and if f is Inf or NaN.
inline float on_lattice(const CodecParams& p, float f) {
  if (!(std::fabs(f) < p.exact)) return f;
  return std::nearbyintf(f * p.steps_per_one) * p.step;
}

// Load and store floats, which may lie at odd addresses.
inline float load_float(const float* p, size_t i) {
  uint32_t bits;
  std::memcpy(&bits, reinterpret_cast<const uint8_t*>(p) + i * sizeof bits, sizeof bits);
  return to_float(bits);
}
inline void store_float(float* p, size_t i, float f) {
  std::memcpy(reinterpret_cast<uint8_t*>(p) + i * sizeof f, &f, sizeof f);
}

constexpr size_t kPayloadWidth[] = {0, 1, 2, 4};

// Payload that is not yet read.
struct Payload {
  const uint8_t* at;
  const uint8_t* end;

  [[nodiscard]] size_t left() const { return static_cast<size_t>(end - at); }

  // Returns the next float. Its tag is in the low bits of `tags`, and is shifted out.
  template <class C>
  float next(const CodecParams& params, uint64_t& tags) {
    const unsigned tag = tags & 3;
    tags >>= 2;
    uint32_t bits = 0;
    std::memcpy(&bits, at, kPayloadWidth[tag]);
    at += kPayloadWidth[tag];
    return C::decode(params, {tag, bits});
  }
};

// Writes one group of `count` floats, the values of `next(i)`. Returns false and writes nothing if the group does not
// fit.
template <class C, class Next>
bool put_group(const CodecParams& params, size_t count, Next next, Sink& sink, uint8_t* tags) {
  uint8_t payload[kGroupFloats * sizeof(float)];
  size_t bytes = 0;
  uint64_t word = 0;
  for (size_t i = 0; i < count; ++i) {
    const Tagged t = C::encode(params, next(i));
    word |= static_cast<uint64_t>(t.tag) << (2 * i);
    std::memcpy(payload + bytes, &t.payload, kPayloadWidth[t.tag]);
    bytes += kPayloadWidth[t.tag];
  }
  if (static_cast<ptrdiff_t>(bytes) > sink.room()) return false;
  std::memcpy(sink.at, payload, bytes);
  sink.advance(bytes);
  store_tags(tags, word);
  return true;
}

template <class C>
struct EncodeSource {
  const CodecParams& params;
  const float* in;
  size_t floats;

  static size_t run(size_t group, Sink&, uint8_t*) { return group; }
  static size_t resume(size_t group, Sink&, uint8_t*) { return group; }

  size_t step(size_t group, Sink& sink, uint8_t* tags) {
    const size_t from = group * kGroupFloats;
    const size_t count = smaller(kGroupFloats, floats - from);
    const auto next = [&](size_t i) { return load_float(in, from + i); };
    return put_group<C>(params, count, next, sink, tags + group * kTagBytes) ? group + 1 : group;
  }
};

struct NoScratch {};

template <class C>
struct HopSource {
  const CodecParams& params;
  const uint8_t* block_tags;  // tags of the first group
  Payload payload;
  const NoScratch* scratch;
  const float* local;
  size_t floats;
  Status* status;

  static size_t run(size_t group, Sink&, uint8_t*) { return group; }
  static size_t resume(size_t group, Sink&, uint8_t*) { return group; }

  size_t step(size_t group, Sink& sink, uint8_t* tags) {
    const size_t from = group * kGroupFloats;
    const size_t count = smaller(kGroupFloats, floats - from);
    uint64_t word = load_tags(block_tags + group * kTagBytes);
    Payload in = payload;
    if (payload_bytes(word) > in.left()) {
      *status = Status::kShort;
      return group;
    }
    const auto next = [&](size_t i) {
      return add(in.next<C>(params, word), C::contribution(params, load_float(local, from + i)));
    };
    if (!put_group<C>(params, count, next, sink, tags + group * kTagBytes)) return group;
    payload = in;
    if (from + count == floats && payload.left() != 0) *status = Status::kLong;
    return group + 1;
  }
};

struct Kernels {
  template <class C>
  using Encode = EncodeSource<C>;
  template <class C>
  using Hop = HopSource<C>;
  using Payload = gradlane::Payload;
  using Scratch = NoScratch;

  template <class C, bool kAdd>
  static Status decode(const CodecParams& params, const uint8_t* block, size_t bytes, float* out,
                       size_t floats) noexcept {
    if (const Status status = check_tags(block, bytes, floats); status != Status::kOk) return status;
    gradlane::Payload in{block + groups_of(floats) * kTagBytes, block + bytes};
    uint64_t word = 0;
    for (size_t i = 0; i < floats; ++i) {
      if (i % kGroupFloats == 0) {
        word = load_tags(block + i / kGroupFloats * kTagBytes);
        if (payload_bytes(word) > in.left()) return Status::kShort;
      }
      const float f = in.next<C>(params, word);
      store_float(out, i, kAdd ? add(load_float(out, i), f) : f);
    }
    return in.left() == 0 ? Status::kOk : Status::kLong;
  }

  static Status validate(const CodecParams& params, const uint8_t* block, size_t bytes, size_t floats) noexcept {
    return validate_tagged(params, block, bytes, floats);
  }
};

}  // namespace
}  // namespace gradlane
