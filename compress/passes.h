// passes.h - entry points of codecs without tags and of tagged codecs, around the kernels of an instruction set;
// included by the kernels of every instruction set
//
// The code is in an unnamed namespace; layout.h says why.
#pragma once

#include "compress/writer.h"

namespace gradlane {
namespace {

// ---- Codecs without tags
//
// `Lanes` is a vector of kCount floats. `load<Form>(p, count)` and `store<Form>(p, count, v)` move its first `count`
// floats, which are at p in the format of a codec, Form::kWidth bytes each. `Lanes::Float` is the format of fp32.
// `add(a, b)` returns 0x7fc00000 for every NaN (see Codec).
template <class Lanes, class Form>
struct FlatPasses {
  static EncodeResult encode(const CodecParams&, const EncodeJob& job) noexcept {
    const size_t floats = smaller(job.floats, job.room / Form::kWidth);
    for_lanes(floats, [&](size_t i, size_t count) GRADLANE_INLINE_LAMBDA {
      Lanes::template store<Form>(job.out + i * Form::kWidth, count, load_float(job.in, i, count));
    });
    return {floats, floats * Form::kWidth};
  }

  static Status validate(const CodecParams&, const uint8_t*, size_t bytes, size_t floats) noexcept {
    return compare_words(bytes, floats, Form::kWidth);
  }

  template <bool kAdd>
  static Status decode(const CodecParams&, const uint8_t* block, size_t bytes, float* out, size_t floats) noexcept {
    if (const Status status = compare_words(bytes, floats, Form::kWidth); status != Status::kOk) return status;
    for_lanes(floats, [&](size_t i, size_t count) GRADLANE_INLINE_LAMBDA {
      auto v = Lanes::template load<Form>(block + i * Form::kWidth, count);
      if constexpr (kAdd) v = Lanes::add(load_float(out, i, count), v);
      Lanes::template store<typename Lanes::Float>(reinterpret_cast<uint8_t*>(out) + i * sizeof(float), count, v);
    });
    return Status::kOk;
  }

  static HopResult hop(const CodecParams&, const HopJob& job) noexcept {
    const Status status = compare_words(job.block_bytes, job.floats, Form::kWidth);
    if (status != Status::kOk) return {status, 0, 0};
    const size_t floats = smaller(job.floats - job.first, job.room / Form::kWidth);
    for_lanes(floats, [&](size_t i, size_t count) GRADLANE_INLINE_LAMBDA {
      const auto in = Lanes::template load<Form>(job.block + (job.first + i) * Form::kWidth, count);
      const auto sum = Lanes::add(in, load_float(job.local, job.first + i, count));
      Lanes::template store<Form>(job.out + i * Form::kWidth, count, sum);
    });
    return {Status::kOk, floats, floats * Form::kWidth};
  }

  static constexpr CodecOps ops() { return {encode, validate, decode<false>, decode<true>, hop}; }

 private:
  static GRADLANE_INLINE auto load_float(const float* p, size_t i, size_t count) {
    return Lanes::template load<typename Lanes::Float>(reinterpret_cast<const uint8_t*>(p) + i * sizeof(float), count);
  }

  // Calls `pass(index, count)` for each full vector, and for the rest of the floats.
  template <class Pass>
  static GRADLANE_INLINE void for_lanes(size_t floats, Pass pass) {
    size_t i = 0;
    for (; i + Lanes::kCount <= floats; i += Lanes::kCount) pass(i, Lanes::kCount);
    if (i < floats) pass(i, floats - i);
  }
};

// ---- Tagged codecs
//
// `Kernels` has the passes of an instruction set, with a codec C as their parameter. None of them has error feedback.
// - `Encode<C>{params, in, floats}` is a source of write_block() that encodes.
// - `Hop<C>{params, tags, payload, scratch, local, floats, status}` is a source that adds `local` to a block. The block
//   has its tag words at `tags` and its payload at Kernels::Payload{begin, end}. `scratch` is memory for the source, a
//   Kernels::Scratch. The source sets *status to kShort if the payload ends early, and to kLong if bytes are left after
//   the last group.
// - `decode<C, kAdd>` and `validate` are as in CodecOps.
template <class Kernels, class C>
struct TaggedPasses {
  static EncodeResult encode(const CodecParams& params, const EncodeJob& job) noexcept {
    return write_block(typename Kernels::template Encode<C>{params, job.in, job.floats}, job.floats, job.out, job.room);
  }

  static HopResult hop(const CodecParams& params, const HopJob& job) noexcept {
    Status status = check_tags(job.block, job.block_bytes, job.floats);
    if (status != Status::kOk) return {status, 0, 0};
    const size_t floats = job.floats - job.first;
    const size_t skipped = job.first / kGroupFloats;
    const uint8_t* const end = job.block + job.block_bytes;
    const uint8_t* const payload = job.block + groups_of(job.floats) * kTagBytes;
    const auto payload_left = static_cast<size_t>(end - payload);
    const size_t skipped_bytes = payload_bytes(job.block, skipped);
    if (skipped_bytes > payload_left) return {Status::kShort, 0, 0};
    if (floats == 0) return {compare_length(payload_left, skipped_bytes), 0, 0};
    typename Kernels::Scratch scratch;
    const typename Kernels::Payload left{payload + skipped_bytes, end};
    const EncodeResult written =
        write_block(typename Kernels::template Hop<C>{params, job.block + skipped * kTagBytes, left, &scratch,
                                                      job.local + job.first, floats, &status},
                    floats, job.out, job.room);
    if (status != Status::kOk) return {status, 0, 0};
    return {status, written.floats, written.bytes};
  }

  static constexpr CodecOps ops() {
    return {encode, Kernels::validate, Kernels::template decode<C, false>, Kernels::template decode<C, true>, hop};
  }
};

inline Status validate_tagged(const CodecParams&, const uint8_t* block, size_t bytes, size_t floats) noexcept {
  if (const Status status = check_tags(block, bytes, floats); status != Status::kOk) return status;
  const size_t groups = groups_of(floats);
  return compare_length(bytes, groups * kTagBytes + payload_bytes(block, groups));
}

}  // namespace
}  // namespace gradlane
