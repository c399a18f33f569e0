// tagged.h - the passes over tagged blocks: encode, decode, decode_add, hop (included by avx2.cc only)
#pragma once

#include "compress/avx2/decode.h"

namespace gradlane {
namespace {

// What encodes one contribution. Writes blocks through write_block(): run() does full groups, narrow ones in a short
// loop and the others out of line, as long as there is ample room; step() does the rest.
template <class C, bool kFeedback>
struct EncodeSource {
  const CodecParams& params;
  const float* in;
  float* residual;
  size_t floats;

  [[gnu::noinline]] size_t run(size_t group, Sink& sink, uint8_t* tags) noexcept {
    const C codec(params);
    WordsBatch batch;
    const size_t full = floats / kGroupFloats;
    while (group < full) {
      const size_t offered = WordsBatch::groups(full - group, sink);
      size_t count = 0;
      for (; count < offered; ++count) {
        const size_t from = (group + count) * kGroupFloats;
        Floats x = load_group(in + from);
        if constexpr (kFeedback) x = add(x, load_group(residual + from));
        Words words;
        if (!codec.narrow(x, words)) [[unlikely]]
          break;
        batch.set(count, words);
        if constexpr (kFeedback) store_group(residual + from, codec.narrow_error(x));
      }
      batch.put(count, sink, tags + group * kTagBytes);
      group += count;
      const size_t narrow_end = group;
      if (count < offered) [[unlikely]]
        group = run_wide(group, full, sink, tags);
      if (group == narrow_end && (count < offered || offered == 0)) break;
    }
    return group;
  }

  size_t resume(size_t group, Sink& sink, uint8_t* tags) noexcept { return run(group, sink, tags); }

  size_t step(size_t group, Sink& sink, uint8_t* tags) noexcept { return run_wide(group, group + 1, sink, tags); }

 private:
  // Groups of any kind, the last one of a block included, up to `end` or behind some without raw floats.
  [[gnu::noinline]] size_t run_wide(size_t group, size_t end, Sink& sink, uint8_t* tags) noexcept {
    const C codec(params);
    for (bool go = true; go && group < end;) {
      WideBatch batch;
      const size_t most = WideBatch::groups(end - group, sink);
      const bool sure = most != 0;
      const size_t count = sure ? most : 1;
      float unsure[kGroupFloats];
      float* const errors = kFeedback && sure ? residual + group * kGroupFloats : unsure;
      for (size_t i = 0; i < count; ++i) {
        const size_t from = (group + i) * kGroupFloats;
        Floats x = load_group(in + from, floats - from);
        if constexpr (kFeedback) x = canonical_if_any(add(x, load_group(residual + from, floats - from)));
        codec.encode_wide(x, batch.group[i]);
        if constexpr (kFeedback) {
          store_group(errors + i * kGroupFloats, floats - from, codec.error(x));
        } else {
          batch.group[i].keep_nans(x);
        }
      }
      if (!sure) {
        if (!batch.group[0].fits(sink)) break;
        if constexpr (kFeedback) {
          const size_t from = group * kGroupFloats;
          store_group(residual + from, floats - from, load_group(unsure, floats - from));
        }
      }
      go = batch.put(count, sink, tags + group * kTagBytes);
      group += count;
    }
    return group;
  }
};

// What adds one contribution to a block.
template <class C, bool kFeedback>
struct HopSource {
  const CodecParams& params;
  const uint8_t* block_tags;  // of the first group
  Payload payload;
  Payload::Spare* spare;
  const float* local;
  float* residual;
  size_t floats;
  Status* status;

  [[gnu::noinline]] size_t run(size_t group, Sink& sink, uint8_t* tags) noexcept {
    const C codec(params);
    WordsBatch batch;
    const size_t full = floats / kGroupFloats;
    while (group < full) {
      const size_t offered = WordsBatch::groups(full - group, sink);
      Payload block = payload;
      size_t count = 0;
      for (; count < offered; ++count) {
        const Group coded(block_tags + (group + count) * kTagBytes);
        if (!block.has(coded.bytes) || (!C::kAddsRaw && coded.has_raw())) [[unlikely]]
          break;
        const size_t from = (group + count) * kGroupFloats;
        Floats x = load_group(local + from);
        if constexpr (kFeedback) x = add(x, load_group(residual + from));
        Words words;
        Payload next = block;
        if (!codec.add_narrow(decode_group(codec, coded, next, *spare), x, words)) [[unlikely]]
          break;
        block = next;
        batch.set(count, words);
        if constexpr (kFeedback) store_group(residual + from, codec.narrow_error(x));
      }
      payload = block;
      batch.put(count, sink, tags + group * kTagBytes);
      group += count;
      const size_t narrow_end = group;
      if (count < offered) [[unlikely]]
        group = run_wide(group, full, sink, tags);
      if (group == narrow_end && (count < offered || offered == 0)) break;
    }
    check_end(group);
    return group;
  }

  size_t resume(size_t group, Sink& sink, uint8_t* tags) noexcept { return run(group, sink, tags); }

  size_t step(size_t group, Sink& sink, uint8_t* tags) noexcept { return run_wide(group, group + 1, sink, tags); }

 private:
  // See EncodeSource. One loop adds, one encodes, one puts.
  [[gnu::noinline]] size_t run_wide(size_t group, size_t end, Sink& sink, uint8_t* tags) noexcept {
    const C codec(params);
    for (bool go = true; go && group < end;) {
      alignas(32) float sums[WideBatch::kGroups][kGroupFloats];
      const size_t most = WideBatch::groups(end - group, sink);
      const bool sure = most != 0;
      const size_t offered = sure ? most : 1;
      float unsure[kGroupFloats];
      float* const errors = kFeedback && sure ? residual + group * kGroupFloats : unsure;
      Payload block = payload;
      const size_t count = add_groups(codec, group, offered, block, sums, errors);
      WideBatch batch;
      for (size_t i = 0; i < count; ++i) codec.encode_wide(canonical_if_any(load_group(sums[i])), batch.group[i]);
      if (!sure && count != 0) {
        if (!batch.group[0].fits(sink)) break;
        if constexpr (kFeedback) {
          const size_t from = group * kGroupFloats;
          store_group(residual + from, floats - from, load_group(unsure, floats - from));
        }
      }
      payload = block;
      go = batch.put(count, sink, tags + group * kTagBytes);
      group += count;
      if (count < offered) [[unlikely]] {
        *status = Status::kShort;
        break;
      }
    }
    check_end(group);
    return group;
  }

  // Adds as many of `most` groups as are there, and leaves new residuals at `errors`.
  GRADLANE_INLINE size_t add_groups(const C& codec, size_t group, size_t most, Payload& block,
                                    float (*sums)[kGroupFloats], float* errors) const {
    for (size_t i = 0; i < most; ++i) {
      const size_t from = (group + i) * kGroupFloats;
      Floats x = load_group(local + from, floats - from);
      if constexpr (kFeedback) {
        x = add(x, load_group(residual + from, floats - from));
        Floats error;
        x = codec.addend(x, error);
        store_group(errors + i * kGroupFloats, floats - from, error);
      } else {
        x = codec.addend(x);
      }
      Floats in;
      if (!decode_any(codec, block_tags + (group + i) * kTagBytes, block, *spare, in)) [[unlikely]]
        return i;
      store_group(sums[i], codec.sum(in, x));
    }
    return most;
  }

  GRADLANE_INLINE void check_end(size_t group) const {
    if (group == groups_of(floats) && payload.at != payload.end) [[unlikely]]
      *status = Status::kLong;
  }
};

// The last group where it is not full.
template <class C, bool kAdd>
[[gnu::noinline]] void decode_some(const CodecParams& params, Group coded, Payload& payload, Payload::Spare& spare,
                                   float* out, size_t count) noexcept {
  Floats x = decode_group(C(params), coded, payload, spare);
  if constexpr (kAdd) x = canonical(add(load_group(out, count), x));
  store_group(out, count, x);
}

// See TaggedPasses.
struct Kernels {
  template <class C, bool kFeedback>
  using Encode = EncodeSource<C, kFeedback>;
  template <class C, bool kFeedback>
  using Hop = HopSource<C, kFeedback>;
  using Payload = gradlane::Payload;
  using Scratch = gradlane::Payload::Spare;

  template <class C, bool kAdd>
  static Status decode(const CodecParams& params, const uint8_t* block, size_t bytes, float* out,
                       size_t floats) noexcept {
    if (const Status status = check_tags(block, bytes, floats); status != Status::kOk) return status;
    Payload::Spare spare;
    const C codec(params);
    const size_t full = floats / kGroupFloats;
    Payload in{block + groups_of(floats) * kTagBytes, block + bytes};
    for (size_t group = 0; group < full; ++group) {
      const Group coded(block + group * kTagBytes);
      if (!in.has(coded.bytes)) [[unlikely]]
        return Status::kShort;
      Floats x = decode_group(codec, coded, in, spare);
      float* const at = out + group * kGroupFloats;
      if constexpr (kAdd) x = canonical(add(load_group(at), x));
      store_group(at, x);
    }
    if (const size_t rest = floats % kGroupFloats; rest != 0) {
      const Group coded(block + full * kTagBytes);
      if (!in.has(coded.bytes)) return Status::kShort;
      gradlane::Payload last = in;  // a copy, so that `in` may stay in registers above
      decode_some<C, kAdd>(params, coded, last, spare, out + full * kGroupFloats, rest);
      in = last;
    }
    return in.at == in.end ? Status::kOk : Status::kLong;
  }

  static Status validate(const CodecParams& params, const uint8_t* block, size_t bytes, size_t floats) noexcept {
    return validate_tagged(params, block, bytes, floats);
  }
};

}  // namespace
}  // namespace gradlane
