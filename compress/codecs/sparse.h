// sparse.h - entry points of codecs that send some elements and keep the others; included by the kernels of every
// instruction set that are made with the kit
//
// `Choice` is the codec: an object made of (params, position of the record's first float). It has:
// - `Floats x(g, residual, second)` returns what could be sent of sixteen elements. It updates `second`, the second
//   state array.
// - `Mask takes(x, i)` returns which floats of the record are sent, from i on. NaN and Inf are always sent. A value
//   that is 0, or becomes 0 on the lattice, is never sent. So params.threshold is never 0 (rows/sparse.h).
// - `see(params, scan, job)` is CodecOps::scan.
// - `kSecond` says whether there is a second state array.
// Where an element is sent, the first state array keeps only the rounding error, and the second one becomes 0.
//
// The code is in an unnamed namespace; layout.h says why.
#pragma once

#include "compress/codecs/sparse_writer.h"

namespace gradlane {
namespace {

// The choice for sums and results: all elements that are not 0.
struct Everything {
  static constexpr bool kSecond = false;
  Everything(const CodecParams&, uint64_t) {}
  static GRADLANE_INLINE Floats x(const Floats& g, const Floats&, Floats&) { return g; }
  static GRADLANE_INLINE Mask takes(const Floats& x, size_t) { return has_value(x); }
};

// Copy of a record's states, to restore them if the record does not fit.
struct Before {
  float residual[kRecordFloats];
  float second[kRecordFloats];

  void keep(const Own& own, size_t floats) {
    std::memcpy(residual, own.residual, floats * sizeof(float));
    if (own.second != nullptr) std::memcpy(second, own.second, floats * sizeof(float));
  }
  void give_back(const Own& own, size_t floats) const {
    std::memcpy(own.residual, residual, floats * sizeof(float));
    if (own.second != nullptr) std::memcpy(own.second, second, floats * sizeof(float));
  }
};

// Writes records of one codec. The parameters say how it chooses, whether it keeps the rest, and whether it rounds what
// it sends.
template <class Choice, bool kKeep, bool kLattice>
struct SparseWriter {
  const CodecParams& params;
  uint8_t* at;
  size_t room;

  // Writes the record of `floats` elements, the first one at `position`. Adds `theirs` to it, if that is not null.
  // Returns false and changes nothing if the record does not fit.
  GRADLANE_INLINE bool put(uint64_t position, const Own& own, const SparseRecord* theirs, size_t floats) {
    if (!kKeep || room >= longest_record(kRecordFloats, true)) [[likely]]
      return put_sure(position, own, theirs, floats);
    return put_or_not(position, own, theirs, floats);
  }

 private:
  GRADLANE_INLINE bool put_sure(uint64_t position, const Own& own, const SparseRecord* theirs, size_t floats) {
    Picked picked;
    pick<kKeep, kLattice>(Choice(params, position), own, params.exact, floats, picked);
    size_t bytes;
    if (theirs != nullptr && theirs->count != 0) {
      Picked other, sum;
      unpack(params, *theirs, other);
      merge(picked, other, sum);
      bytes = write_record(params, sum, floats, at, room);
    } else {
      bytes = write_record(params, picked, floats, at, room);
    }
    at += bytes;
    room -= bytes;
    return bytes != 0;
  }

  [[gnu::noinline]] bool put_or_not(uint64_t position, const Own& own, const SparseRecord* theirs, size_t floats) {
    Before before;
    before.keep(own, floats);
    if (put_sure(position, own, theirs, floats)) return true;
    before.give_back(own, floats);
    return false;
  }
};

template <class Choice>
struct SparsePasses {
  static EncodeResult encode(const CodecParams& params, const EncodeJob& job) noexcept {
    const bool lattice = params.arguments.value_bits != 0;
    if (job.residual == nullptr) {
      return lattice ? write<Choice, false, true>(params, job) : write<Choice, false, false>(params, job);
    }
    return lattice ? write<Choice, true, true>(params, job) : write<Choice, true, false>(params, job);
  }
  static EncodeResult encode_sum(const CodecParams& params, const EncodeJob& job) noexcept {
    return write<Everything, false, false>(params, job);
  }

  static Status validate(const CodecParams& params, const uint8_t* block, size_t bytes, size_t floats) noexcept {
    return read(params, block, bytes, floats, [](size_t, size_t, const SparseRecord&) {});
  }

  template <bool kAdd>
  static Status decode(const CodecParams& params, const uint8_t* block, size_t bytes, float* out,
                       size_t floats) noexcept {
    return read(params, block, bytes, floats, [&](size_t i, size_t count, const SparseRecord& record) {
      auto* const to = reinterpret_cast<uint8_t*>(out) + i * sizeof(float);
      if constexpr (!kAdd) std::memset(to, 0, count * sizeof(float));
      for_values(params, record, [to](size_t place, float value) GRADLANE_INLINE_LAMBDA {
        uint8_t* const here = to + place * sizeof value;
        if constexpr (kAdd) {
          float sum;
          std::memcpy(&sum, here, sizeof sum);
          value = sum + value == sum + value ? sum + value : __builtin_nanf("");
        }
        std::memcpy(here, &value, sizeof value);
      });
    });
  }

  static HopResult hop(const CodecParams& params, const HopJob& job) noexcept {
    const bool lattice = params.arguments.value_bits != 0;
    if (job.residual == nullptr)
      return lattice ? add_own<false, true>(params, job) : add_own<false, false>(params, job);
    return lattice ? add_own<true, true>(params, job) : add_own<true, false>(params, job);
  }

  static void scan(const CodecParams& params, TensorScan& scan, const ScanJob& job) noexcept {
    Choice::see(params, scan, job);
  }

  static constexpr CodecOps ops() { return {encode, validate, decode<false>, decode<true>, hop, encode_sum, scan}; }

 private:
  static size_t usable_room(const CodecParams& params, size_t floats, size_t room) {
    return room >= sparse_max_bytes(params.arguments, floats) ? room : smaller(room, kMaxPacket);
  }

  template <class Chosen, bool kKeep, bool kLattice>
  static EncodeResult write(const CodecParams& params, const EncodeJob& job) noexcept {
    const Own own{job.in, job.residual, job.second};
    SparseWriter<Chosen, kKeep, kLattice> writer{params, job.out, usable_room(params, job.floats, job.room)};
    size_t done = 0;
    while (done < job.floats) {
      const size_t count = smaller(job.floats - done, kRecordFloats);
      if (!writer.put(job.position + done, own.from(done), nullptr, count)) break;
      done += count;
    }
    return {done, static_cast<size_t>(writer.at - job.out)};
  }

  template <bool kKeep, bool kLattice>
  static HopResult add_own(const CodecParams& params, const HopJob& job) noexcept {
    const uint8_t* const end = job.block + job.block_bytes;
    const uint8_t* at = job.block;
    SparseRecord record;
    for (size_t i = 0; i < job.first; i += kRecordFloats) {
      const Status status = open_record(params, at, end, smaller(job.floats - i, kRecordFloats), record);
      if (status != Status::kOk) return {status, 0, 0};
      at = record.end;
    }
    const size_t floats = job.floats - job.first;
    const Own own = Own{job.local, job.residual, job.second}.from(job.first);
    SparseWriter<Choice, kKeep, kLattice> writer{params, job.out, usable_room(params, floats, job.room)};
    size_t done = 0;
    while (done < floats) {
      const size_t count = smaller(floats - done, kRecordFloats);
      const Status status = open_record(params, at, end, count, record);
      if (status != Status::kOk) return {status, 0, 0};
      if (!writer.put(job.position + job.first + done, own.from(done), &record, count)) break;
      at = record.end;
      done += count;
    }
    if (done == floats && at != end) return {Status::kLong, 0, 0};
    return {Status::kOk, done, static_cast<size_t>(writer.at - job.out)};
  }

  // Calls f(first float, floats, record) for all records.
  template <class F>
  static GRADLANE_INLINE Status read(const CodecParams& params, const uint8_t* block, size_t bytes, size_t floats,
                                     F f) {
    const uint8_t* const end = block + bytes;
    SparseRecord record;
    for (size_t i = 0; i < floats; i += kRecordFloats) {
      const size_t count = smaller(floats - i, kRecordFloats);
      if (const Status status = open_record(params, block, end, count, record); status != Status::kOk) return status;
      f(i, count, record);
      block = record.end;
    }
    return block == end ? Status::kOk : Status::kLong;
  }
};

}  // namespace
}  // namespace gradlane
