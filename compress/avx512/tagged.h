// tagged.h - the passes over tagged blocks: encode, decode, decode_add, hop (included by avx512.cc only)
#pragma once

#include "compress/avx512/vectors.h"

namespace gradlane {
namespace {

// Every pass has a short loop for simple groups (full, narrow, with room to store a whole vector). A function out of
// line handles all other groups. This separation keeps the state of the loop in registers. A loop that writes a block
// reads the next group before it classifies and writes the current one. The two parts are independent, so the CPU
// overlaps them with half as many instructions in flight.

// Calls run_pairwise() with a sink as the output. `finish(g, begun, put)` writes with PutWords as long as whole vectors
// certainly fit. After that, it writes with PutExactly, which checks that the payload fits. If kScarce is false, it
// stops there instead.
template <class Begun, bool kScarce, class Begin, class Finish>
GRADLANE_INLINE size_t run_into(const Sink& sink, size_t group, size_t groups, Begin begin, Finish finish) {
  const auto ample = [&](size_t g, const Begun& begun) GRADLANE_INLINE_LAMBDA { return finish(g, begun, PutWords{}); };
  if constexpr (!kScarce) {
    if (group >= groups) return group;
    return run_pairwise<Begun>(group, group + smaller(sink.fitting(kNarrowBytes), groups - group), begin, ample);
  } else {
    constexpr size_t kFew = 8;
    while (group < groups) {
      const size_t fitting = sink.fitting(kNarrowBytes);
      if (fitting < kFew && fitting < groups - group) {
        return run_pairwise<Begun>(group, groups, begin, [&](size_t g, const Begun& begun) GRADLANE_INLINE_LAMBDA {
          return finish(g, begun, PutExactly{});
        });
      }
      const size_t end = group + smaller(fitting, groups - group);
      group = run_pairwise<Begun>(group, end, begin, ample);
      if (group != end) [[unlikely]]
        break;
    }
    return group;
  }
}

// Handles groups that run() refused. It handles one of them, or some pairs if run() has made no progress since the last
// call. The number of pairs grows while run() makes no progress, so that run() is tried less often.
class Stepper {
 public:
  template <class Source>
  GRADLANE_INLINE size_t step(Source& source, size_t group, size_t groups, Sink& sink, uint8_t* tags) {
    pairs_ = group != stopped_at_ ? 0 : pairs_ < kMaxPairs ? 2 * pairs_ + 1 : kMaxPairs;
    for (size_t i = 0; i < pairs_ && groups - group >= 2; ++i) {
      const size_t written = source.template steps<2>(group, sink, tags);
      group += written;
      if (written < 2) return group;
    }
    if (pairs_ == 0 || groups - group == 1) group += source.template steps<1>(group, sink, tags);
    return stopped_at_ = group;
  }

 private:
  static constexpr size_t kMaxPairs = 15;
  size_t pairs_ = 0;
  size_t stopped_at_ = 0;
};

// The source of write_block() (compress/writer.h) that encodes one contribution.
template <class C>
struct EncodeSource {
  const CodecParams& params;
  const float* in;
  size_t floats;
  Stepper stepper{};

  using Begun = typename C::Quantised;

  GRADLANE_INLINE size_t run(size_t group, Sink& sink, uint8_t* tags) { return go<false>(group, sink, tags); }
  GRADLANE_INLINE size_t resume(size_t group, Sink& sink, uint8_t* tags) { return go<true>(group, sink, tags); }

  template <bool kScarce>
  GRADLANE_INLINE size_t go(size_t group, Sink& sink, uint8_t* tags) {
    const C codec(params);
    Sink out = sink;
    const auto finish = [&](size_t g, const Begun& begun, auto put) GRADLANE_INLINE_LAMBDA {
      Words words;
      return codec.encode(begun, words) && put(words, out, tags + g * kTagBytes);
    };
    group = run_into<Begun, kScarce>(
        out, group, floats / kGroupFloats,
        [&](size_t g, Begun& begun) GRADLANE_INLINE_LAMBDA {
          begun = codec.quantise(load_floats(in + g * kGroupFloats));
          return true;
        },
        finish);
    sink = out;
    return group;
  }

  size_t step(size_t group, Sink& sink, uint8_t* tags) {
    return stepper.step(*this, group, groups_of(floats), sink, tags);
  }

  // Computes kCount groups of any kind together, and writes them one by one. Returns how many are written.
  template <size_t kCount>
  [[gnu::noinline]] size_t steps(size_t group, Sink& sink, uint8_t* tags) {
    const C codec(params);
    Floats x[kCount];
    Mixed mixed[kCount];
#pragma GCC unroll 2
    for (size_t i = 0; i < kCount; ++i) {
      x[i] = SomeFloats(left(group + i)).load(in + (group + i) * kGroupFloats);
    }
#pragma GCC unroll 2
    for (size_t i = 0; i < kCount; ++i) mixed[i] = codec.encode_any(x[i]);
#pragma GCC unroll 2
    for (size_t i = 0; i < kCount; ++i) {
      if (!put_mixed(mixed[i], sink, tags + (group + i) * kTagBytes)) return i;
    }
    return kCount;
  }

 private:
  [[nodiscard]] GRADLANE_INLINE size_t left(size_t group) const { return floats - group * kGroupFloats; }
};

struct NoScratch {};

// The source of write_block() that adds one contribution to a block.
template <class C>
struct HopSource {
  const CodecParams& params;
  const uint8_t* block_tags;  // tags of the first group
  Payload payload;
  const NoScratch* scratch;
  const float* local;
  size_t floats;
  Status* status;
  Stepper stepper{};

  struct Begun {
    typename C::Sum sum;
    const uint8_t* at;  // end of the group's payload
  };

  GRADLANE_INLINE size_t run(size_t group, Sink& sink, uint8_t* tags) { return go<false>(group, sink, tags); }
  GRADLANE_INLINE size_t resume(size_t group, Sink& sink, uint8_t* tags) { return go<true>(group, sink, tags); }

  template <bool kScarce>
  GRADLANE_INLINE size_t go(size_t group, Sink& sink, uint8_t* tags) {
    const C codec(params);
    Sink out = sink;
    Payload in = payload;
    const uint8_t* done = in.at;  // end of the payload of the latest group that was written
    const auto finish = [&](size_t g, const Begun& begun, auto put) GRADLANE_INLINE_LAMBDA {
      Words words;
      if (!codec.finish_hop(begun.sum, words) || !put(words, out, tags + g * kTagBytes)) [[unlikely]]
        return false;
      done = begun.at;
      return true;
    };
    group = run_into<Begun, kScarce>(
        out, group, floats / kGroupFloats,
        [&](size_t g, Begun& begun) GRADLANE_INLINE_LAMBDA {
          const NarrowGroup narrow(load_tags(block_tags + g * kTagBytes));
          if (narrow.has_raw() || !in.has(narrow.bytes())) [[unlikely]]
            return false;
          fetch_next_page(local + g * kGroupFloats);
          begun.sum = codec.begin_hop(narrow.read(in.at), load_floats(local + g * kGroupFloats));
          in.at += narrow.bytes();
          begun.at = in.at;
          return true;
        },
        finish);
    sink = out;
    payload.at = done;
    if (group * kGroupFloats == floats && done != payload.end) [[unlikely]]
      *status = Status::kLong;
    return group;
  }

  size_t step(size_t group, Sink& sink, uint8_t* tags) {
    return stepper.step(*this, group, groups_of(floats), sink, tags);
  }

  // Computes kCount groups of any kind together, and writes them one by one. Returns how many are written.
  template <size_t kCount>
  [[gnu::noinline]] size_t steps(size_t group, Sink& sink, uint8_t* tags) {
    const C codec(params);
    Payload in = payload;
    ReadMixed read[kCount];
    const uint8_t* behind[kCount];
    Floats x[kCount];
    Mixed mixed[kCount];
#pragma GCC unroll 2
    for (size_t i = 0; i < kCount; ++i) {
      if (!get_mixed(load_tags(block_tags + (group + i) * kTagBytes), in, read[i])) {
        // the error counts only if the first group fits into the sink
        if (i > 0) return steps<1>(group, sink, tags);
        *status = Status::kShort;
        return 0;
      }
      behind[i] = in.at;
      x[i] = SomeFloats(left(group + i)).load(local + (group + i) * kGroupFloats);
    }
#pragma GCC unroll 2
    for (size_t i = 0; i < kCount; ++i) {
      mixed[i] = codec.encode_any(add_canonical(codec.decode_any(read[i]), codec.contribution(x[i])));
    }
#pragma GCC unroll 2
    for (size_t i = 0; i < kCount; ++i) {
      if (!put_mixed(mixed[i], sink, tags + (group + i) * kTagBytes)) return i;
      payload.at = behind[i];
    }
    if (left(group + kCount - 1) <= kGroupFloats && payload.at != payload.end) *status = Status::kLong;
    return kCount;
  }

 private:
  [[nodiscard]] GRADLANE_INLINE size_t left(size_t group) const { return floats - group * kGroupFloats; }
};

// Decodes a block to `out`, or adds it to `out`.
template <class C, bool kAdd>
struct Decoder {
  const CodecParams& params;
  const uint8_t* tags;
  float* out;
  size_t floats;
  Payload payload;
  __mmask16 no_nan = 0xffff;  // lanes in which no sum was NaN

  GRADLANE_INLINE size_t run(size_t group) {
    const C codec(params);
    const size_t full = floats / kGroupFloats;
    Payload in = payload;
    for (; group < full; ++group) {
      const NarrowGroup narrow(load_tags(tags + group * kTagBytes));
      if (narrow.has_raw() || !in.has(narrow.bytes())) [[unlikely]]
        break;
      float* const at = out + group * kGroupFloats;
      const ReadWords words = narrow.read(in.at);
      if constexpr (kAdd) {
        const Floats sum = codec.decode_add(words, load_floats(at));
        no_nan = _mm512_mask_cmp_ps_mask(no_nan, sum.low, sum.high, _CMP_ORD_Q);
        store_floats(at, sum);
      } else {
        store_floats(at, codec.decode(words));
      }
      in.at += narrow.bytes();
    }
    payload = in;
    return group;
  }

  // Handles a group of any kind. Returns false if its payload is incomplete.
  [[gnu::noinline]] bool step(size_t group) {
    const C codec(params);
    ReadMixed read;
    if (!get_mixed(load_tags(tags + group * kTagBytes), payload, read)) return false;
    float* const at = out + group * kGroupFloats;
    const SomeFloats some(floats - group * kGroupFloats);
    const Floats x = codec.decode_any(read);
    some.store(at, kAdd ? add_canonical(some.load(at), x) : x);
    return true;
  }

  // Continues at `group`, where the first run() stopped. Returns the status of the block.
  [[gnu::noinline]] Status finish(size_t group) {
    const size_t groups = groups_of(floats);
    for (; group < groups; group = run(group + 1)) {
      if (!step(group)) return Status::kShort;
    }
    if (no_nan != 0xffff) {
      for (size_t i = 0; i < floats; i += kGroupFloats) {
        const SomeFloats some(floats - i);
        some.store(out + i, canonical(some.load(out + i)));
      }
    }
    return payload.at == payload.end ? Status::kOk : Status::kLong;
  }
};

// Sums the payload bytes of groups, eight at a time. It adds three popcounts: of all tag bits, of the high bit of tags,
// and of tags that are 3.
inline size_t payload_bytes_512(const uint8_t* tags, size_t groups) {
  const __m512i low = _mm512_set1_epi64(static_cast<long long>(kTagLow));
  __m512i sum = _mm512_setzero_si512();
  for (size_t g = 0; g < groups; g += 8) {
    const __mmask8 some = static_cast<__mmask8>(groups - g >= 8 ? 0xff : (1U << (groups - g)) - 1);
    const __m512i word = _mm512_maskz_loadu_epi64(some, tags + g * kTagBytes);
    const __m512i high = _mm512_and_si512(_mm512_srli_epi64(word, 1), low);
    // tag 1: 1 + 0 + 0; tag 2: 1 + 1 + 0; tag 3: 2 + 1 + 1
    sum = _mm512_add_epi64(sum, _mm512_popcnt_epi64(word));
    sum = _mm512_add_epi64(sum, _mm512_popcnt_epi64(high));
    sum = _mm512_add_epi64(sum, _mm512_popcnt_epi64(_mm512_and_si512(high, word)));
  }
  return static_cast<size_t>(_mm512_reduce_add_epi64(sum));
}

// The `Kernels` of TaggedPasses (compress/passes.h).
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
    const size_t groups = groups_of(floats);
    Decoder<C, kAdd> decoder{params, block, out, floats, {block + groups * kTagBytes, block + bytes}};
    const size_t group = decoder.run(0);
    if (group == groups && decoder.payload.at == decoder.payload.end && decoder.no_nan == 0xffff) [[likely]]
      return Status::kOk;
    Decoder<C, kAdd> rest = decoder;  // a copy, so that `decoder` itself is never in memory
    return rest.finish(group);
  }

  static Status validate(const CodecParams&, const uint8_t* block, size_t bytes, size_t floats) noexcept {
    if (const Status status = check_tags(block, bytes, floats); status != Status::kOk) return status;
    const size_t groups = groups_of(floats);
    return compare_length(bytes, groups * kTagBytes + payload_bytes_512(block, groups));
  }
};

}  // namespace
}  // namespace gradlane
