// engine_model.h - clocked model of the INCEPTIONN paper's NIC engine (tools and tests; no packet passes through it)
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
//   group        a tag vector, followed by the payload of its lanes in order: 16 to 272 bits
//   stream       groups without gaps, cut into bursts; zeros fill the last one
//
// Tags, payloads and the rule for one float are those of codec `inceptionn`. Its blocks hold the same bits in another
// order: all tags first. Like a block, a stream does not say how many floats it has. Missing floats of the last group
// have tag 0.
//
// Every width is a multiple of 8 bits, so registers hold bytes; byte 0 is the least significant one. The classes below
// have the registers as members. Their const functions read the registers before the clock edge; clock() is the edge.
// Call ready() before clock(): while it is false, the engine does not take an input.
inline constexpr size_t kEngineLanes = 8;
inline constexpr size_t kBurstBytes = 32;
inline constexpr size_t kTagVectorBytes = 2;
inline constexpr size_t kMaxGroupBytes = kTagVectorBytes + kBurstBytes;
inline constexpr double kEngineClockHz = 100e6;

using Burst = std::array<uint8_t, kBurstBytes>;
using Lanes = std::array<uint32_t, kEngineLanes>;  // bit patterns of floats

struct EngineParams {
  unsigned bits = 10;     // b: the error is below 2^-b; 2 to 14, the engines throw SetupError for others
  bool truncate = false;  // true: truncates instead of rounding to nearest
};

// A register that is filled at its end and shifted out at its front. Bytes from `fill` on are zero.
template <size_t kBytes>
struct ShiftRegister {
  std::array<uint8_t, kBytes> bytes{};
  size_t fill = 0;

  // Appends bytes. The register must have room for them.
  void append(std::span<const uint8_t> more) {
    std::ranges::copy(more, bytes.data() + fill);
    fill += more.size();
  }
  // Removes the first `count` bytes, at most `fill`.
  void drop(size_t count) {
    std::copy(bytes.data() + count, bytes.data() + fill, bytes.data());
    std::fill(bytes.data() + (fill - count), bytes.data() + fill, uint8_t{0});
    fill -= count;
  }
};

// The compressor, in two pipeline stages. The compression blocks turn a burst of floats into a group (register
// staged_). The alignment unit appends that group to its register, and emits a burst from the front as soon as it has a
// full one.
//
// A group can be longer than a burst, and only one burst leaves per cycle. A group that does not fit into the alignment
// register stays in staged_, and stalls the input: one cycle in 17 on incompressible data. The alignment register must
// hold a burst less one byte, followed by the longest group. A register of two bursts would be one byte too short, and
// the engine could stall forever.
class CompressionEngine {
 public:
  explicit CompressionEngine(EngineParams params);

  // Returns whether the next edge can take a burst of floats.
  [[nodiscard]] bool ready() const { return staged_.fill == 0 || staged_moves(); }
  // Returns whether everything that was taken has been emitted.
  [[nodiscard]] bool idle() const { return staged_.fill == 0 && aligned_.fill == 0; }
  // Runs one cycle, and returns the burst that leaves, if any. `in` is null if there is no input. `flush` means that no
  // input follows, so the partial burst leaves, too.
  std::optional<Burst> clock(const Lanes* in, bool flush);

 private:
  [[nodiscard]] bool staged_moves() const;

  const EngineParams params_;
  ShiftRegister<kMaxGroupBytes> staged_;
  ShiftRegister<kBurstBytes - 1 + kMaxGroupBytes> aligned_;
};

// The decompressor. Bursts enter a buffer of two bursts, because a group may extend over two. The tag vector at the
// front of the buffer moves to a register of its own. It tells where each lane's payload lies, and where the next group
// begins. The lanes emit their floats when the payload is complete, one cycle later at the earliest. The next tag
// vector moves to its register in the same cycle.
//
// The tag register is necessary. A group of 272 bits that begins in the last bytes of one burst ends in the third, and
// the buffer holds only two. With the register, an incomplete payload fills less than one burst of the buffer, so the
// next burst always fits.
class DecompressionEngine {
 public:
  // Makes a decompressor for a stream of `floats` values.
  DecompressionEngine(EngineParams params, size_t floats);

  // Returns whether the next edge can take a burst.
  [[nodiscard]] bool ready() const { return buffer_.fill - plan().consumed + kBurstBytes <= buffer_.bytes.size(); }
  // Returns whether the engine can do nothing without another burst.
  [[nodiscard]] bool starved() const;
  // Returns whether all groups have been emitted, or the stream was found to be bad.
  [[nodiscard]] bool done() const { return bad_tail_ || (groups_left_ == 0 && !tags_); }
  [[nodiscard]] bool bad_tail() const { return bad_tail_; }
  // Returns whether the buffer holds only the zeros at the end of the last burst.
  [[nodiscard]] bool only_padding() const;
  [[nodiscard]] size_t buffered_bits() const { return 8 * buffer_.fill; }
  // Runs one cycle, and returns the floats that leave, if any. `in` is null if there is no input.
  std::optional<Lanes> clock(const Burst* in);

 private:
  // The bytes that the next edge takes from the front of the buffer.
  struct Plan {
    bool decode;      // takes the payload that tags_ describes
    bool load_tags;   // takes the tag vector that follows the payload
    size_t consumed;  // bytes of both
  };
  [[nodiscard]] Plan plan() const;
  [[nodiscard]] Lanes decode_lanes() const;

  const EngineParams params_;
  const unsigned last_lanes_;  // number of floats in the last group
  size_t groups_left_;         // number of groups whose tag vectors have not come yet
  std::optional<uint16_t> tags_;
  ShiftRegister<2 * kBurstBytes> buffer_;
  bool bad_tail_ = false;
};

struct EngineRun {
  std::vector<Burst> bursts;
  uint64_t cycles = 0;  // from the first burst in to the last burst out
  uint64_t stalls = 0;  // cycles in which input had to wait
};

struct DecompressionRun {
  // kShort: bursts are missing; kLong: bytes other than zeros follow; kBadTail: as in a block
  Status status = Status::kOk;
  std::vector<float> floats;  // all of them if kOk
  uint64_t cycles = 0;
  uint64_t stalls = 0;
};

// Clock an engine until all of its output has left. The engine gets an input in every cycle in which it is ready.
[[nodiscard]] EngineRun compress_stream(EngineParams params, std::span<const float> data);
[[nodiscard]] DecompressionRun decompress_stream(EngineParams params, std::span<const Burst> bursts, size_t floats);

// The speed of the engines on `data`, for comparison with a CPU. Gb/s are 10^9 bits of fp32 per second; one burst of
// floats per cycle at 100 MHz is 25.6 Gb/s.
struct EngineFigure {
  double compress_gbps = 0;
  double decompress_gbps = 0;
  uint64_t compress_cycles = 0;
  uint64_t decompress_cycles = 0;
  uint64_t stream_bytes = 0;  // size of the compressed stream, in whole bursts
};
[[nodiscard]] double fp32_gbps(size_t floats, uint64_t cycles, double clock_hz = kEngineClockHz);
[[nodiscard]] EngineFigure engine_figure(unsigned bits, bool truncate, std::span<const float> data,
                                         double clock_hz = kEngineClockHz);

}  // namespace gradlane
