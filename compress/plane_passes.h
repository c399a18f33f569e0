// plane_passes.h - the entry points of a codec in bit planes around the kernels of an instruction set; included by each
// of them
//
// `Kernels` has the shortcuts of an instruction set, for full groups without escapes. All of them take groups from
// `group` on, stop before the first one that they are not made for, and return it:
// - `encode<kFeedback>(job, group, sink, tags)`: of the full groups of `job`, a PlaneJob
// - `hop<kFeedback>(job, input, group, sink, tags)`: the same, added to those of `input`, a PlaneInput
// - `decode<kAdd>(params, input, out, group, groups)`: to `out`, which is that of group 0
// They begin at even groups only. `GroupOps` is AnyGroup, or the same in that instruction set.
//
// In an unnamed namespace for the same reason as layout.h.
#pragma once

#include "compress/plane_group.h"

namespace gradlane {
namespace {

// Where groups go: payload from `at` on, escapes down from `escapes`.
struct PlaneSink {
  uint8_t* at;
  uint8_t* escapes;
  ptrdiff_t debt = 0;  // bytes between them that are taken

  [[nodiscard]] ptrdiff_t room() const { return escapes - at - debt; }
};

// Where they come from, with a block that is all there: as many escapes as its tags announce.
struct PlaneInput {
  const uint8_t* tags;
  const uint8_t* at;       // payload
  const uint8_t* end;      // of the payload
  const uint8_t* escapes;  // the next one is in front of it
  size_t first = 0;        // its group that is group 0 here

  [[nodiscard]] GRADLANE_INLINE unsigned tag(size_t group) const { return plane_tag(tags, first + group); }

  // The next group, `group`.
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

  // Leaves out the first `groups`.
  void skip(size_t groups) {
    first = groups;
    const PlaneTags sum = sum_tags(tags, groups);
    at += sum.words * kPlaneBytes;
    for (size_t i = 0; i < sum.escapes; ++i, escapes -= kEscapeBytes) at += load_escape(escapes).words() * kPlaneBytes;
  }
};

// The input for a block, if that is valid.
inline Status open_planes(const uint8_t* block, size_t bytes, size_t floats, PlaneInput& input) {
  size_t length = 0;
  if (const Status status = check_plane_tags(block, bytes, floats, length); status != Status::kOk) return status;
  const size_t groups = groups_of(floats);
  const size_t escapes = bytes == length ? sum_tags(block, groups).escapes * kEscapeBytes : 0;
  input = {block, block + plane_tag_bytes(groups), block + bytes - escapes, block + bytes};
  return compare_length(bytes, length);
}

// A group of floats, which may lie at odd addresses.
inline const uint8_t* group_at(const float* p, size_t group) {
  return reinterpret_cast<const uint8_t*>(p) + group * kGroupFloats * sizeof(float);
}
inline uint8_t* group_at(float* p, size_t group) {
  return reinterpret_cast<uint8_t*>(p) + group * kGroupFloats * sizeof(float);
}

// What is encoded, or added.
struct PlaneJob {
  const CodecParams& params;
  const float* in;
  float* residual;  // null without feedback
  size_t floats;

  [[nodiscard]] size_t full_groups() const { return floats / kGroupFloats; }
  [[nodiscard]] size_t count(size_t group) const { return smaller(kGroupFloats, floats - group * kGroupFloats); }

  // The floats of a group, with what feedback owes them. Missing ones are 0.
  template <class GroupOps, bool kFeedback>
  void load(size_t group, float* x) const {
    load_some(in, group, x);
    if constexpr (kFeedback) {
      alignas(32) float owed[kGroupFloats];
      load_some(residual, group, owed);
      GroupOps::add_to(x, owed);
    }
  }

  // Leaves behind what their rounding owes them now.
  template <class GroupOps>
  void owe(size_t group, const float* x, const float* rounded) const {
    alignas(32) float owed[kGroupFloats];
    GroupOps::subtract(x, rounded, owed);
    std::memcpy(group_at(residual, group), owed, count(group) * sizeof(float));
  }

 private:
  void load_some(const float* from, size_t group, float* x) const {
    if (count(group) < kGroupFloats) std::memset(x, 0, kGroupFloats * sizeof(float));
    std::memcpy(x, group_at(from, group), count(group) * sizeof(float));
  }
};

// Puts one group; false, and nothing done, if there is no room.
template <class GroupOps>
bool put_planes(const CodecParams& params, const float* x, size_t count, size_t group, PlaneSink& sink, uint8_t* tags,
                CodedGroup& coded) {
  GroupOps::code(params, x, count, coded);
  if (static_cast<ptrdiff_t>(coded.bytes()) > sink.room()) return false;
  GroupOps::put(coded, sink.at, sink.escapes);
  sink.at += coded.escape.words() * kPlaneBytes;
  if (coded.tag == kEscape) sink.escapes -= kEscapeBytes;
  set_plane_tag(tags, group, coded.tag);
  return true;
}

// ---- Sources of write_planes(): run() writes groups with shortcuts, step() one of any kind, if there is room for it

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
    if constexpr (kFeedback) job.owe<GroupOps>(group, x, coded.rounded);
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
    if constexpr (kFeedback) job.owe<GroupOps>(group, x, rounded);
    input = after;
    return true;
  }
};

// ---- How a block grows in an output of limited room
//
// Tags stand in front of the payload, so where that begins depends on how many groups will fit. Mostly all that are
// offered do: the payload is written where it belongs then, escapes at the end of the room, and only these are moved in
// the end. Else the groups that did not fit behind the full set of tags go on in a buffer on the stack.

template <class Source>
GRADLANE_INLINE size_t write_plane_groups(Source& source, size_t group, size_t groups, PlaneSink& sink, uint8_t* out) {
  for (;;) {
    if (group % 2 == 0) group = source.run(group, sink, out);
    if (group == groups || !source.step(group, sink, out)) return group;
    ++group;
  }
}

// After `done` groups, with `direct` bytes of payload behind tags of all groups, and escapes from sink.escapes on.
template <class Source>
[[gnu::noinline]] EncodeResult spill_planes(Source& source, size_t floats, size_t done, PlaneSink sink, uint8_t* out,
                                            size_t room) noexcept {
  if (room > kMaxPacket) return {0, 0};  // room for all: never so
  const size_t groups = groups_of(floats);
  const bool had_place = plane_tag_bytes(groups) <= room;
  uint8_t* const begin = out + (had_place ? plane_tag_bytes(groups) : 0);
  const auto direct = static_cast<size_t>(sink.at - begin);
  const auto escapes = static_cast<size_t>(out + room - sink.escapes);
  const size_t tag_bytes = plane_tag_bytes(done);
  uint8_t buffer[kMaxPacket];
  const size_t left = room - tag_bytes - direct - escapes;
  PlaneSink spill{buffer, buffer + left};
  for (; done < groups; ++done) {
    spill.debt = static_cast<ptrdiff_t>(plane_tag_bytes(done + 1) - tag_bytes);
    if (spill.room() < 0 || !source.step(done, spill, out)) break;
  }
  if (done == 0) return {0, 0};
  uint8_t* at = out + plane_tag_bytes(done);
  const auto add = [&at](const uint8_t* from, size_t bytes) {
    std::memmove(at, from, bytes);
    at += bytes;
  };
  add(begin, direct);
  add(buffer, static_cast<size_t>(spill.at - buffer));
  add(spill.escapes, static_cast<size_t>(buffer + left - spill.escapes));
  add(out + room - escapes, escapes);
  return {smaller(floats, done * kGroupFloats), static_cast<size_t>(at - out)};
}

// Writes a block of as many of `floats` values as fit into `room` bytes (see Codec::encode()).
template <class Source>
GRADLANE_INLINE EncodeResult write_planes(Source& source, size_t floats, uint8_t* out, size_t room) {
  room = usable_plane_room(floats, room);
  const size_t groups = groups_of(floats);
  const size_t tag_bytes = plane_tag_bytes(groups);
  PlaneSink sink{out, out + room};
  size_t done = 0;
  if (tag_bytes <= room) [[likely]] {
    sink.at += tag_bytes;
    done = write_plane_groups(source, 0, groups, sink, out);
    if (done == groups) [[likely]] {
      const auto escapes = static_cast<size_t>(out + room - sink.escapes);
      if (escapes != 0) std::memmove(sink.at, sink.escapes, escapes);
      return {floats, static_cast<size_t>(sink.at - out) + escapes};
    }
  }
  return spill_planes(source, floats, done, sink, out, room);
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
  // Functions of their own, so that each has the registers to itself.
  template <bool kFeedback>
  [[gnu::noinline]] static EncodeResult encode_with(const CodecParams& params, const EncodeJob& job) noexcept {
    PlaneEncoder<Kernels, kFeedback> source{{params, job.in, job.residual, job.floats}};
    return write_planes(source, job.floats, job.out, job.room);
  }

  template <bool kFeedback>
  [[gnu::noinline]] static HopResult hop_with(const CodecParams& params, const HopJob& job) noexcept {
    PlaneInput input;
    if (const Status status = open_planes(job.block, job.block_bytes, job.floats, input); status != Status::kOk) {
      return {status, 0, 0};
    }
    const size_t floats = job.floats - job.first;
    if (floats == 0) return {Status::kOk, 0, 0};
    input.skip(job.first / kGroupFloats);
    PlaneAdder<Kernels, kFeedback> source{
        {params, job.local + job.first, kFeedback ? job.residual + job.first : nullptr, floats}, input};
    const EncodeResult written = write_planes(source, floats, job.out, job.room);
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
