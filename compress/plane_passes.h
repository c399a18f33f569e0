// plane_passes.h - entry points of codecs in bit planes, around the kernels of an instruction set; included by the
// kernels of every instruction set
//
// `Kernels` has the shortcuts of an instruction set, for full groups without escapes. Each of them starts at `group`,
// stops before the first group that it cannot handle, and returns that group:
// - `encode<kFeedback>(job, group, sink, tags)` encodes full groups of `job`, a PlaneJob.
// - `hop<kFeedback>(job, input, group, sink, tags)` adds full groups of `job` to those of `input`, a PlaneInput.
// - `decode<kAdd>(params, input, out, group, groups)` decodes to `out`, which is the address of group 0.
// The shortcuts begin only at even groups. `GroupOps` is AnyGroup, or an instruction set's own version of it.
//
// The code is in an unnamed namespace; layout.h says why.
#pragma once

#include "compress/plane_group.h"

namespace gradlane {
namespace {

// Output for groups: payload grows from `at` upwards, and escapes grow from `escapes` downwards.
struct PlaneSink {
  uint8_t* at;
  uint8_t* escapes;
  size_t wanted = 0;  // bytes of the group that did not fit

  [[nodiscard]] ptrdiff_t room() const { return escapes - at; }
};

// Input of groups. The block is complete: it has all escapes that its tags announce.
struct PlaneInput {
  const uint8_t* tags;
  const uint8_t* at;       // next payload
  const uint8_t* escapes;  // end of the next escape
  size_t first = 0;        // number of the group in the block that is group 0 here

  [[nodiscard]] GRADLANE_INLINE unsigned tag(size_t group) const { return plane_tag(tags, first + group); }

  // Returns the tags of two groups, 4 bits each.
  [[nodiscard]] GRADLANE_INLINE unsigned two_tags(size_t group) const {
    const uint8_t* const from = tags + (first + group) / 2;
    if ((first + group) % 2 == 0) return from[0];
    return static_cast<unsigned>(from[0] >> 4 | (from[1] & 15) << 4);
  }

  // Returns the width and the raw floats of the next group, number `group`. Sets `payload` to its payload, and moves on
  // to the group after it.
  Escape next(size_t group, const uint8_t*& payload) {
    const unsigned tag = this->tag(group);
    Escape escape{tag, 0};
    if (tag == kEscape) {
      escape = load_escape(escapes);
      escapes -= kEscapeBytes;
    }
    payload = at;
    at += escape.words() * kPlaneBytes;
    return escape;
  }

  // Skips the first `groups` groups.
  void skip(size_t groups) {
    first = groups;
    const PlaneTags sum = sum_tags(tags, groups, escapes);
    at += sum.words * kPlaneBytes;
    for (size_t i = 0; i < sum.escapes; ++i, escapes -= kEscapeBytes) at += load_escape(escapes).words() * kPlaneBytes;
  }
};

// Opens a block as input, if it is valid.
inline Status open_planes(const uint8_t* block, size_t bytes, size_t floats, PlaneInput& input) {
  size_t length = 0;
  if (const Status status = check_plane_tags(block, bytes, floats, length); status != Status::kOk) return status;
  if (const Status status = compare_length(bytes, length); status != Status::kOk) return status;
  input = {block, block + plane_least_bytes(floats), block + bytes};
  return Status::kOk;
}

// Opens the block of a hop as input, from job.first on.
inline Status open_planes(const HopJob& job, PlaneInput& input) {
  const Status status = open_planes(job.block, job.block_bytes, job.floats, input);
  if (status == Status::kOk) input.skip(job.first / kGroupFloats);
  return status;
}

// Estimates the bytes of a sum: a sum is rarely shorter than the part of the block that is added.
inline size_t least_planes(const PlaneInput& input, size_t floats) {
  return plane_tag_bytes(groups_of(floats)) + static_cast<size_t>(input.escapes - input.at);
}

// Returns the address of group `group` of the floats at p. The address may be odd.
inline const uint8_t* group_at(const float* p, size_t group) {
  return reinterpret_cast<const uint8_t*>(p) + group * kGroupFloats * sizeof(float);
}
inline uint8_t* group_at(float* p, size_t group) {
  return reinterpret_cast<uint8_t*>(p) + group * kGroupFloats * sizeof(float);
}

// The floats to encode or to add.
struct PlaneJob {
  const CodecParams& params;
  const float* in;
  float* residual;  // null without feedback
  size_t floats;

  [[nodiscard]] size_t full_groups() const { return floats / kGroupFloats; }
  [[nodiscard]] size_t count(size_t group) const { return smaller(kGroupFloats, floats - group * kGroupFloats); }

  // Loads the floats of a group, plus their residuals. Missing floats are 0.
  template <class GroupOps, bool kFeedback>
  void load(size_t group, float* x) const {
    load_some(in, group, x);
    if constexpr (kFeedback) {
      alignas(32) float new_residual[kGroupFloats];
      load_some(residual, group, new_residual);
      GroupOps::add_to(x, new_residual);
    }
  }

  // Stores the new residuals of a group.
  template <class GroupOps>
  void store_residual(size_t group, const float* x, const float* rounded) const {
    alignas(32) float new_residual[kGroupFloats];
    GroupOps::subtract(x, rounded, new_residual);
    std::memcpy(group_at(residual, group), new_residual, count(group) * sizeof(float));
  }

 private:
  void load_some(const float* from, size_t group, float* x) const {
    if (count(group) < kGroupFloats) std::memset(x, 0, kGroupFloats * sizeof(float));
    std::memcpy(x, group_at(from, group), count(group) * sizeof(float));
  }
};

// Writes one group. If the group does not fit, this writes nothing, sets sink.wanted and returns false.
template <class GroupOps>
bool put_planes(const CodecParams& params, const float* x, size_t count, size_t group, PlaneSink& sink, uint8_t* tags,
                CodedGroup& coded) {
  GroupOps::code(params, x, count, coded);
  if (static_cast<ptrdiff_t>(coded.bytes()) > sink.room()) {
    sink.wanted = coded.bytes();
    return false;
  }
  GroupOps::put(coded, sink.at, sink.escapes);
  sink.at += coded.escape.words() * kPlaneBytes;
  if (coded.tag == kEscape) sink.escapes -= kEscapeBytes;
  set_plane_tag(tags, group, coded.tag);
  return true;
}

// ---- Sources of write_planes(): run() writes groups with shortcuts, step() writes one group of any kind if there is
// room

template <class Kernels, bool kFeedback>
struct PlaneEncoder {
  using GroupOps = typename Kernels::GroupOps;

  PlaneJob job;

  GRADLANE_INLINE size_t run(size_t group, PlaneSink& sink, uint8_t* tags) {
    return Kernels::template encode<kFeedback>(job, group, sink, tags);
  }

  [[gnu::noinline]] bool step(size_t group, PlaneSink& sink, uint8_t* tags) {
    alignas(32) float x[kGroupFloats];
    CodedGroup coded;
    job.load<GroupOps, kFeedback>(group, x);
    if (!put_planes<GroupOps>(job.params, x, job.count(group), group, sink, tags, coded)) return false;
    if constexpr (kFeedback) job.store_residual<GroupOps>(group, x, coded.rounded);
    return true;
  }
};

template <class Kernels, bool kFeedback>
struct PlaneAdder {
  using GroupOps = typename Kernels::GroupOps;

  PlaneJob job;
  PlaneInput input;

  GRADLANE_INLINE size_t run(size_t group, PlaneSink& sink, uint8_t* tags) {
    return Kernels::template hop<kFeedback>(job, input, group, sink, tags);
  }

  [[gnu::noinline]] bool step(size_t group, PlaneSink& sink, uint8_t* tags) {
    PlaneInput after = input;
    const uint8_t* payload;
    const Escape escape = after.next(group, payload);
    alignas(32) float x[kGroupFloats], rounded[kGroupFloats], sums[kGroupFloats];
    job.load<GroupOps, kFeedback>(group, x);
    GroupOps::get(job.params, escape, payload, sums);
    GroupOps::round(job.params, x, rounded);
    GroupOps::add_to(sums, rounded);
    const size_t count = job.count(group);
    for (size_t i = count; i < kGroupFloats; ++i) sums[i] = 0;
    CodedGroup coded;
    if (!put_planes<GroupOps>(job.params, sums, count, group, sink, tags, coded)) return false;
    if constexpr (kFeedback) job.store_residual<GroupOps>(group, x, rounded);
    input = after;
    return true;
  }
};

// ---- Growth of a block in limited room
//
// In a block, the tags precede the payload. So the payload's start depends on how many groups will fit. The payload is
// written after the tags of a planned number of groups, which mostly is all of them. Escapes are written at the end of
// the output. If fewer or more groups fit, the payload moves, and writing continues after it. At the end, the escapes
// move next to the payload.

// A block that is being written.
struct PlaneBlock {
  uint8_t* out;
  uint8_t* end;     // end of the output
  size_t groups;    // number of groups in all
  size_t planned;   // number of groups for whose tags there is space before the payload
  size_t done = 0;  // number of groups that are written

  [[nodiscard]] uint8_t* payload() const { return out + plane_tag_bytes(planned); }

  // Moves the payload to the place after the tags of `number` groups.
  void plan(size_t number, PlaneSink& sink) {
    uint8_t* const from = payload();
    const auto bytes = static_cast<size_t>(sink.at - from);
    planned = number;
    if (payload() != from) std::memmove(payload(), from, bytes);
    sink.at = payload() + bytes;
  }

  // Makes a new plan, when all planned groups are written or the next one did not fit. The plan assumes that the
  // remaining groups are as long as those written. Returns false if no group fits any more.
  [[gnu::noinline]] bool go_on(PlaneSink& sink) {
    const auto bytes = static_cast<size_t>(sink.at - payload());
    const auto used = bytes + static_cast<size_t>(end - sink.escapes);
    const auto room = static_cast<size_t>(end - out) - used;  // bytes left for tags and for the next groups
    const size_t next = done < planned ? sink.wanted : 0;
    if (plane_tag_bytes(done + 1) + next > room) return false;
    const size_t left = room - plane_tag_bytes(done);
    const size_t likely = done == 0 ? 1 : done * 2 * left / (bytes * 2 + done);
    const size_t most = smaller(groups, 2 * (room - next));  // fewer than planned, if a group did not fit
    plan(smaller(done + (likely == 0 ? 1 : likely), most), sink);
    return true;
  }

  EncodeResult close(size_t floats, PlaneSink& sink) {
    plan(done, sink);
    const auto escapes = static_cast<size_t>(end - sink.escapes);
    if (escapes != 0) std::memmove(sink.at, sink.escapes, escapes);
    return {smaller(floats, done * kGroupFloats), static_cast<size_t>(sink.at - out) + escapes};
  }
};

// Writes a block of as many of `floats` values as fit into `room` bytes (see Codec::encode()). `bytes` estimates the
// bytes of all values, or is 0. The source encodes floats up to source.job.floats, which this function sets.
template <class Source>
GRADLANE_INLINE EncodeResult write_planes(Source& source, size_t floats, size_t bytes, uint8_t* out, size_t room) {
  room = usable_plane_room(floats, room);
  const size_t groups = groups_of(floats);
  PlaneBlock block{out, out + room, groups, groups};
  if (bytes > room) block.planned = groups * room / bytes;
  if (plane_tag_bytes(block.planned) > room / 4) [[unlikely]]
    block.planned = smaller(groups, room / 2);
  PlaneSink sink{block.payload(), block.end};
  do {
    source.job.floats = smaller(floats, block.planned * kGroupFloats);
    while (block.done < block.planned) {
      if (block.done % 2 == 0) block.done = source.run(block.done, sink, out);
      if (block.done == block.planned || !source.step(block.done, sink, out)) break;
      ++block.done;
    }
  } while (block.done != groups && block.go_on(sink));
  return block.close(floats, sink);
}

// ---- Entry points

template <class Kernels>
struct PlanePasses {
  static EncodeResult encode(const CodecParams& params, const EncodeJob& job) noexcept {
    return job.residual != nullptr ? encode_with<true>(params, job) : encode_with<false>(params, job);
  }

  static HopResult hop(const CodecParams& params, const HopJob& job) noexcept {
    return job.residual != nullptr ? hop_with<true>(params, job) : hop_with<false>(params, job);
  }

  static Status validate(const CodecParams&, const uint8_t* block, size_t bytes, size_t floats) noexcept {
    return validate_planes(block, bytes, floats);
  }

  template <bool kAdd>
  static Status decode(const CodecParams& params, const uint8_t* block, size_t bytes, float* out,
                       size_t floats) noexcept {
    PlaneInput input;
    if (const Status status = open_planes(block, bytes, floats, input); status != Status::kOk) return status;
    const PlaneJob place{params, out, nullptr, floats};
    const size_t groups = groups_of(floats);
    for (size_t group = 0; group < groups; ++group) {
      if (group % 2 == 0) group = Kernels::template decode<kAdd>(params, input, out, group, place.full_groups());
      if (group == groups) break;
      decode_one<kAdd>(place, input, group, out);
    }
    return Status::kOk;
  }

  static constexpr CodecOps ops() { return {encode, validate, decode<false>, decode<true>, hop}; }

 private:
  // These functions are not inlined, so that each has all registers to itself.
  template <bool kFeedback>
  [[gnu::noinline]] static EncodeResult encode_with(const CodecParams& params, const EncodeJob& job) noexcept {
    PlaneEncoder<Kernels, kFeedback> source{{params, job.in, job.residual, job.floats}};
    return write_planes(source, job.floats, 0, job.out, job.room);
  }

  template <bool kFeedback>
  [[gnu::noinline]] static HopResult hop_with(const CodecParams& params, const HopJob& job) noexcept {
    PlaneInput input;
    if (const Status status = open_planes(job, input); status != Status::kOk) return {status, 0, 0};
    const size_t floats = job.floats - job.first;
    if (floats == 0) return {Status::kOk, 0, 0};
    PlaneAdder<Kernels, kFeedback> source{
        {params, job.local + job.first, kFeedback ? job.residual + job.first : nullptr, floats}, input};
    const EncodeResult written = write_planes(source, floats, least_planes(input, floats), job.out, job.room);
    return {Status::kOk, written.floats, written.bytes};
  }

  template <bool kAdd>
  [[gnu::noinline]] static void decode_one(const PlaneJob& place, PlaneInput& input, size_t group, float* out) {
    using GroupOps = typename Kernels::GroupOps;
    alignas(32) float x[kGroupFloats];
    const uint8_t* payload;
    const Escape escape = input.next(group, payload);
    GroupOps::get(place.params, escape, payload, x);
    if constexpr (kAdd) {
      alignas(32) float sums[kGroupFloats];
      place.load<GroupOps, false>(group, sums);
      GroupOps::add_to(sums, x);
      std::memcpy(x, sums, sizeof x);
    }
    std::memcpy(group_at(out, group), x, place.count(group) * sizeof(float));
  }
};

}  // namespace
}  // namespace gradlane
