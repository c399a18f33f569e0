// engine_model.h - the INCEPTIONN paper's NIC engine as a clocked model (tools and tests; no packet passes it)
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "compress/kernels.h"

namespace gradlane {

// Nomenclature, after the paper (Li et al., MICRO 2018):
//
//   burst        256 bits, what the bus moves in one cycle: 8 floats before compression
//   lane         one of 8 compression (or decompression) blocks side by side; lane i has float i of the burst
//   tag vector   the 8 tags of a burst, 16 bits; the tag of lane i is bits 2i and 2i+1
//   group        a tag vector and behind it the payload of its lanes in order: 16 to 272 bits
//   stream       groups without gaps, cut into bursts; zeros fill the last one
//
// Tags, payloads and the rule for one float are those of codec `inceptionn`, whose blocks hold the same bits in another
// order: all tags first. Like a block, a stream does not say how many floats it has. Floats that are missing in the
// last group have tag 0.
//
// Every width is a multiple of 8 bits, so registers hold bytes; byte 0 is the least significant one. The classes below
// have the registers as members: what a member function reads is their content before the clock edge, and clock() is
// the edge. Whoever drives an engine reads ready() first; an input that is offered while ready() is false is not taken.
inline constexpr size_t kEngineLanes = 8;
inline constexpr size_t kBurstBytes = 32;
inline constexpr size_t kTagVectorBytes = 2;
inline constexpr size_t kMaxGroupBytes = kTagVectorBytes + kBurstBytes;
inline constexpr double kEngineClockHz = 100e6;

using Burst = std::array<uint8_t, kBurstBytes>;
using Lanes = std::array<uint32_t, kEngineLanes>;  // floats as their bits

struct EngineParams {
  unsigned bits = 10;     // b: error below 2^-b, 2 to 14; the engines throw SetupError for others
  bool truncate = false;  // instead of rounding to nearest
};

// A register that is filled from behind and shifted out in front. Bytes from `fill` on are zero.
template <size_t kBytes>
struct ShiftRegister {
  std::array<uint8_t, kBytes> bytes{};
  size_t fill = 0;

  // There must be room.
  void append(std::span<const uint8_t> more) {
    std::ranges::copy(more, bytes.data() + fill);
    fill += more.size();
  }
  // At most `fill`.
  void drop(size_t count) {
    std::copy(bytes.data() + count, bytes.data() + fill, bytes.data());
    std::fill(bytes.data() + (fill - count), bytes.data() + fill, uint8_t{0});
    fill -= count;
  }
};

// Two pipeline stages. The compression blocks turn a burst of floats into a group (register staged_); the alignment
// unit appends that group to its register and emits the front of it as soon as that is a full burst. A group can be
// longer than a burst and only one burst leaves per cycle, so a group without room in the alignment register stays in
// staged_ and stalls the input: on incompressible data one cycle in 17. The register must take the longest group behind
// a burst that lacks its last byte; two bursts are one byte less than that, and would lock up.
class CompressionEngine {
 public:
  explicit CompressionEngine(EngineParams params);

  // A burst of floats can be taken at the next edge.
  [[nodiscard]] bool ready() const { return staged_.fill == 0 || staged_moves(); }
  // Everything that was taken has been emitted.
  [[nodiscard]] bool idle() const { return staged_.fill == 0 && aligned_.fill == 0; }
  // `in` is null in cycles without input. `flush` says that no input follows, so that the partial burst leaves too.
  std::optional<Burst> clock(const Lanes* in, bool flush);

 private:
  [[nodiscard]] bool staged_moves() const;

  const EngineParams params_;
  ShiftRegister<kMaxGroupBytes> staged_;
  ShiftRegister<kBurstBytes - 1 + kMaxGroupBytes> aligned_;
};

// The way back. Bursts enter a two-burst buffer, because a group may straddle bursts. The tag vector at its front moves
// to a register of its own, which tells where each lane's payload lies and where the next group begins; one cycle
// later, when the payload is complete, the lanes emit their floats and the next tag vector moves up in the same cycle.
// Without the tag register two bursts would not do: 272 bits that begin in the last bytes of a burst reach into a third
// one. What a payload waits for is less than a burst, so there always is room for the burst it waits for.
class DecompressionEngine {
 public:
  // For a stream of `floats` values.
  DecompressionEngine(EngineParams params, size_t floats);

  // A burst can be taken at the next edge.
  [[nodiscard]] bool ready() const { return buffer_.fill - plan().consumed + kBurstBytes <= buffer_.bytes.size(); }
  // Nothing happens without another burst.
  [[nodiscard]] bool starved() const;
  // All groups have been emitted, or the stream was found to be bad.
  [[nodiscard]] bool done() const { return bad_tail_ || (groups_left_ == 0 && !tags_); }
  [[nodiscard]] bool bad_tail() const { return bad_tail_; }
  // What is buffered is no more than the zeros of a last burst.
  [[nodiscard]] bool only_padding() const;
  [[nodiscard]] size_t buffered_bits() const { return 8 * buffer_.fill; }
  // `in` is null in cycles without input.
  std::optional<Lanes> clock(const Burst* in);

 private:
  // What the next edge takes from the front of the buffer.
  struct Plan {
    bool decode;      // the payload that tags_ announces
    bool load_tags;   // the tag vector behind it
    size_t consumed;  // bytes of both
  };
  [[nodiscard]] Plan plan() const;
  [[nodiscard]] Lanes decode_lanes() const;

  const EngineParams params_;
  const unsigned last_lanes_;  // floats in the last group
  size_t groups_left_;         // whose tag vectors are still to come
  std::optional<uint16_t> tags_;
  ShiftRegister<2 * kBurstBytes> buffer_;
  bool bad_tail_ = false;
};

struct EngineRun {
  std::vector<Burst> bursts;
  uint64_t cycles = 0;  // from the first burst in to the last one out
  uint64_t stalls = 0;  // of them, those in which input had to wait
};

struct DecompressionRun {
  Status status = Status::kOk;  // kShort: bursts are missing; kLong: more than zeros follow; kBadTail: as of a block
  std::vector<float> floats;    // all of them if kOk
  uint64_t cycles = 0;
  uint64_t stalls = 0;
};

// Clock an engine with as much input as it takes until all is out.
[[nodiscard]] EngineRun compress_stream(EngineParams params, std::span<const float> data);
[[nodiscard]] DecompressionRun decompress_stream(EngineParams params, std::span<const Burst> bursts, size_t floats);

// What the engines would do on `data`, to print beside a CPU's figure. Gb/s are 10^9 bits of fp32 per second; one burst
// of floats per cycle at 100 MHz is 25.6.
struct EngineFigure {
  double compress_gbps = 0;
  double decompress_gbps = 0;
  uint64_t compress_cycles = 0;
  uint64_t decompress_cycles = 0;
  uint64_t stream_bytes = 0;  // whole bursts
};
[[nodiscard]] double fp32_gbps(size_t floats, uint64_t cycles, double clock_hz = kEngineClockHz);
[[nodiscard]] EngineFigure engine_figure(unsigned bits, bool truncate, std::span<const float> data,
                                         double clock_hz = kEngineClockHz);

}  // namespace gradlane
