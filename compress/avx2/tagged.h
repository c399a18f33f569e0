// tagged.h - the passes over tagged blocks: encode, decode, decode_add, hop (included by avx2.cc only)
#pragma once

#include "compress/avx2/decode.h"

namespace gradlane {
namespace {

// A source of write_block() (compress/writer.h) that writes groups in batches, which a Part computes. Full groups are
// for run() as long as there is ample room: narrow ones in a short loop, the others out of line. All other groups are
// for step(). A Part has these functions:
// - `narrow(codec, group, most, batch)` computes up to `most` full groups. It stops at the first one that is not
//   narrow, and returns their number.
// - `wide(codec, group, most, batch)` computes up to `most` groups of any kind, also the last one of a block. It stops
//   at the first one whose payload is incomplete, and returns their number.
// - `undo_wide()` takes back the latest call of wide().
// - `check_end(group)` does nothing unless `group` is the number of groups, so that all are done. Then it checks that
//   no payload is left.
template <class Part>
struct Source : Part {
  [[gnu::noinline]] size_t run(size_t group, Sink& sink, uint8_t* tags) noexcept {
    const typename Part::Codec codec(this->params);
    WordsBatch batch;
    const size_t full = this->floats / kGroupFloats;
    while (group < full) {
      const size_t offered = WordsBatch::groups(full - group, sink);
      const size_t count = this->narrow(codec, group, offered, batch);
      batch.put(count, sink, tags + group * kTagBytes);
      group += count;
      const size_t narrow_end = group;
      if (count < offered) [[unlikely]]
        group = run_wide(group, full, sink, tags);
      if (group == narrow_end && (count < offered || offered == 0)) break;
    }
    this->check_end(group);
    return group;
  }

  size_t resume(size_t group, Sink& sink, uint8_t* tags) noexcept { return run(group, sink, tags); }

  size_t step(size_t group, Sink& sink, uint8_t* tags) noexcept { return run_wide(group, group + 1, sink, tags); }

 private:
  // Writes groups of any kind up to `end`. It stops early after a batch without raw floats. If it is not certain that
  // one group fits, it computes one and tests that.
  [[gnu::noinline]] size_t run_wide(size_t group, size_t end, Sink& sink, uint8_t* tags) noexcept {
    const typename Part::Codec codec(this->params);
    for (bool go = true; go && group < end;) {
      WideBatch batch;
      const size_t most = WideBatch::groups(end - group, sink);
      const bool sure = most != 0;
      const size_t offered = sure ? most : 1;
      const size_t count = this->wide(codec, group, offered, batch);
      if (!sure && count != 0 && !batch.group[0].fits(sink)) {
        this->undo_wide();
        break;
      }
      go = batch.put(count, sink, tags + group * kTagBytes);
      group += count;
      if (count < offered) [[unlikely]]
        break;
    }
    this->check_end(group);
    return group;
  }
};

// A Part of Source that encodes one contribution.
template <class C>
struct Encoder {
  const CodecParams& params;
  const float* local;
  size_t floats;

  using Codec = C;

  GRADLANE_INLINE size_t narrow(const C& codec, size_t group, size_t most, WordsBatch& batch) const {
    for (size_t i = 0; i < most; ++i) {
      const size_t from = (group + i) * kGroupFloats;
      Words words;
      if (!codec.narrow(load_group(local + from), words)) [[unlikely]]
        return i;
      batch.set(i, words);
    }
    return most;
  }

  GRADLANE_INLINE size_t wide(const C& codec, size_t group, size_t most, WideBatch& batch) const {
    for (size_t i = 0; i < most; ++i) {
      const size_t from = (group + i) * kGroupFloats;
      const Floats x = load_group(local + from, floats - from);
      codec.encode_wide(x, batch.group[i]);
      batch.group[i].keep_nans(x);
    }
    return most;
  }

  static void undo_wide() {}
  static void check_end(size_t) {}
};

// A Part of Source that adds one contribution to a block.
template <class C>
struct Adder {
  const CodecParams& params;
  const uint8_t* block_tags;  // tags of the first group
  Payload payload;
  Payload::Spare* spare;
  const float* local;
  size_t floats;
  Status* status;
  Payload before = payload;  // payload where the latest call of wide() began

  using Codec = C;

  GRADLANE_INLINE size_t narrow(const C& codec, size_t group, size_t most, WordsBatch& batch) {
    Payload block = payload;
    size_t count = 0;
    for (; count < most; ++count) {
      const Group coded(block_tags + (group + count) * kTagBytes);
      if (!block.has(coded.bytes) || (!C::kAddsRaw && coded.has_raw())) [[unlikely]]
        break;
      const size_t from = (group + count) * kGroupFloats;
      const Floats x = load_group(local + from);
      Words words;
      Payload next = block;
      if (!codec.add_narrow(decode_group(codec, coded, next, *spare), x, words)) [[unlikely]]
        break;
      block = next;
      batch.set(count, words);
    }
    payload = block;
    return count;
  }

  // Computes groups in two loops: the first one adds, the second one encodes.
  GRADLANE_INLINE size_t wide(const C& codec, size_t group, size_t most, WideBatch& batch) {
    alignas(32) float sums[WideBatch::kGroups][kGroupFloats];
    Payload block = before = payload;
    size_t count = 0;
    for (; count < most; ++count) {
      const size_t from = (group + count) * kGroupFloats;
      const Floats x = codec.addend(load_group(local + from, floats - from));
      Floats in;
      if (!decode_any(codec, block_tags + (group + count) * kTagBytes, block, *spare, in)) [[unlikely]] {
        *status = Status::kShort;
        break;
      }
      store_group(sums[count], codec.sum(in, x));
    }
    payload = block;
    for (size_t i = 0; i < count; ++i) codec.encode_wide(canonical_if_any(load_group(sums[i])), batch.group[i]);
    return count;
  }

  GRADLANE_INLINE void undo_wide() { payload = before; }

  GRADLANE_INLINE void check_end(size_t end) const {
    if (end == groups_of(floats) && payload.at != payload.end) [[unlikely]]
      *status = Status::kLong;
  }
};

// Decodes the last group if it is not full.
template <class C, bool kAdd>
[[gnu::noinline]] void decode_some(const CodecParams& params, Group coded, Payload& payload, Payload::Spare& spare,
                                   float* out, size_t count) noexcept {
  Floats x = decode_group(C(params), coded, payload, spare);
  if constexpr (kAdd) x = canonical(add(load_group(out, count), x));
  store_group(out, count, x);
}

// The `Kernels` of TaggedPasses (compress/passes.h).
struct Kernels {
  template <class C>
  using Encode = Source<Encoder<C>>;
  template <class C>
  using Hop = Source<Adder<C>>;
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
