// selected_planes.h - entry points of codecs that round floats to the lattice in their own way; included by the kernels
// of every instruction set
//
// These codecs round floats one tile at a time. The kernels of `fixed` then encode the tile, or add it to a block. Sums
// are encoded as `fixed` encodes them. None of these codecs has error feedback.
//
// The code is in an unnamed namespace; layout.h says why.
#pragma once

#include "compress/plane_passes.h"
#include "compress/selection.h"

namespace gradlane {
namespace {

using Select = void(const CodecParams&, const SelectJob&) noexcept;

// Number of groups in a tile. It must be even.
constexpr size_t kTileGroups = 16;

template <Select* kSelect>
class SelectedTile {
 public:
  explicit SelectedTile(uint64_t position) : position_(position) {}

  // Fills the tile with the contributions of up to kTileGroups groups from `group` on, unless it already holds `group`.
  void hold(const PlaneJob& job, size_t group) {
    if (begin_ <= group && group < end_) return;
    begin_ = group;
    end_ = smaller(group + kTileGroups, groups_of(job.floats));
    const size_t from = group * kGroupFloats;
    const size_t floats = smaller(job.floats - from, kTileGroups * kGroupFloats);
    if (floats % kGroupFloats != 0) std::memset(floats_[end_ - begin_ - 1], 0, sizeof floats_[0]);
    kSelect(job.params, {job.in + from, floats, position_ + from, floats_[0]});
  }

  [[nodiscard]] const float* at(size_t group) const { return floats_[group - begin_]; }

  // Returns the floats of the tile from `group` on, for kernels without feedback.
  [[nodiscard]] PlaneJob rest(const PlaneJob& job, size_t group) const {
    return {job.params, at(group), nullptr, smaller(end_ * kGroupFloats, job.floats) - group * kGroupFloats};
  }

 private:
  uint64_t position_;  // position of group 0 in the tensor
  size_t begin_ = 0;
  size_t end_ = 0;
  alignas(64) float floats_[kTileGroups][kGroupFloats];
};

// ---- Sources of write_planes() (plane_passes.h)

template <class Kernels, Select* kSelect>
struct SelectedEncoder {
  PlaneJob job;
  SelectedTile<kSelect> tile;

  GRADLANE_INLINE size_t run(size_t group, PlaneSink& sink, uint8_t* tags) {
    while (group < job.full_groups()) {
      tile.hold(job, group);
      const PlaneJob rest = tile.rest(job, group);
      const size_t done = Kernels::template encode<false>(rest, 0, sink, tags + group / 2);
      group += done;
      // at the end, or at a group that has no shortcut; after a full tile, `group` is still even
      if (done != kTileGroups) break;
    }
    return group;
  }

  [[gnu::noinline]] bool step(size_t group, PlaneSink& sink, uint8_t* tags) {
    CodedGroup coded;
    tile.hold(job, group);
    return put_planes<typename Kernels::GroupOps>(job.params, tile.at(group), job.count(group), group, sink, tags,
                                                  coded);
  }
};

template <class Kernels, Select* kSelect>
struct SelectedAdder {
  using GroupOps = typename Kernels::GroupOps;

  PlaneJob job;
  SelectedTile<kSelect> tile;
  PlaneInput input;

  GRADLANE_INLINE size_t run(size_t group, PlaneSink& sink, uint8_t* tags) {
    while (group < job.full_groups()) {
      tile.hold(job, group);
      const PlaneJob rest = tile.rest(job, group);
      PlaneInput from = input;
      from.first += group;
      const size_t done = Kernels::template hop<false>(rest, from, 0, sink, tags + group / 2);
      input.at = from.at;
      group += done;
      if (done != kTileGroups) break;
    }
    return group;
  }

  [[gnu::noinline]] bool step(size_t group, PlaneSink& sink, uint8_t* tags) {
    PlaneInput after = input;
    const uint8_t* payload;
    const Escape escape = after.next(group, payload);
    alignas(32) float sums[kGroupFloats];
    GroupOps::get(job.params, escape, payload, sums);
    tile.hold(job, group);
    GroupOps::add_to(sums, tile.at(group));
    const size_t count = job.count(group);
    for (size_t i = count; i < kGroupFloats; ++i) sums[i] = 0;
    CodedGroup coded;
    if (!put_planes<GroupOps>(job.params, sums, count, group, sink, tags, coded)) return false;
    input = after;
    return true;
  }
};

// ---- Entry points: those of `fixed`, except for contributions

template <auto kEncode, auto kHop>
constexpr CodecOps selected_by(CodecOps ops) {
  ops.encode_sum = ops.encode;
  ops.encode = kEncode;
  ops.hop = kHop;
  return ops;
}

template <auto kLook>
constexpr CodecOps with_scan(CodecOps ops) {
  ops.scan = kLook;
  return ops;
}

template <class Kernels, Select* kSelect>
struct SelectedPasses {
  using Planes = PlanePasses<Kernels>;

  static EncodeResult encode(const CodecParams& params, const EncodeJob& job) noexcept {
    SelectedEncoder<Kernels, kSelect> source{{params, job.in, nullptr, job.floats},
                                             SelectedTile<kSelect>(job.position)};
    return write_planes(source, job.floats, 0, job.out, job.room);
  }

  static HopResult hop(const CodecParams& params, const HopJob& job) noexcept {
    PlaneInput input;
    if (const Status status = open_planes(job, input); status != Status::kOk) return {status, 0, 0};
    const size_t floats = job.floats - job.first;
    if (floats == 0) return {Status::kOk, 0, 0};
    SelectedAdder<Kernels, kSelect> source{
        {params, job.local + job.first, nullptr, floats}, SelectedTile<kSelect>(job.position + job.first), input};
    const EncodeResult written = write_planes(source, floats, least_planes(input, floats), job.out, job.room);
    return {Status::kOk, written.floats, written.bytes};
  }

  static constexpr CodecOps ops() { return selected_by<encode, hop>(Planes::ops()); }
};

}  // namespace
}  // namespace gradlane
