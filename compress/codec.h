// codec.h - the Codec class: error bounds of the codecs, the functions that the packet path calls, and look-ups by name
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/fixed_text.h"
#include "compress/codec_table.h"
#include "compress/isa.h"

namespace gradlane {

// The codec of new configurations. It is exact: users must ask for a lossy codec.
inline constexpr std::string_view kDefaultCodec = "raw";
// The codec that accelerators and measurements of codecs use if the user names no lossy codec.
inline constexpr std::string_view kDefaultLossyCodec = "fixed:10";

// Limit of a codec's name in characters, in configurations, on command lines and in trainers. No codec needs more.
inline constexpr size_t kLongestCodecName = 63;
using CodecName = FixedText<kLongestCodecName + 1>;

// One codec with its parameters, bound to the kernels of one instruction set. It is a small value: copy it, keep it in
// set-up state, call it for each packet.
//
// A *block* is what one call of encode() or hop() writes: the compressed form of a run of fp32 values. It does not
// contain the number of its values: the sender of a block transmits that separately. docs/codec-format.md specifies
// every bit of a block.
//
// All functions below have these properties:
// - They are pure: no heap, no lock, no exception, no state. They assume the default MXCSR (round to nearest even, no
//   flush-to-zero), and never change it.
// - They access only the given spans, whatever the bytes are. They need no slack and no alignment: float spans may
//   begin at odd addresses.
// - Outputs must not overlap inputs. Output bytes after the end of the result may have been overwritten.
// - Every ISA gives the same bytes as the scalar kernels.
// - NaN and Inf survive encode() and decode(). Arrays, packed floats, tagged blocks and bit planes keep the payload
//   bits of a NaN (bf16 and fp16 keep the upper ones and set the quiet bit). Votes, sparse records and chunks make each
//   NaN 0x7fc00000. Where two values are *added*, a NaN result is always 0x7fc00000, so that the order of the ranks
//   cannot change the bytes.
//
// Error per contribution, for the value v that decode(encode(f)) gives (b is the codec's parameter). See error() for
// codecs that are not listed:
//   raw, pack, exact         v = f
//   bf16, fp16               |v - f| <= |f| 2^-8 (bf16), |f| 2^-11 (fp16) while f is in the format's normal
//                            range; below it |v - f| <= 2^-134 (bf16), 2^-25 (fp16); what rounds past the largest
//                            number becomes Inf
//   inceptionn:b[,truncate]  |v - f| < 2^-b, 2 <= b <= 14; v = f where |f| >= 1
//   inceptionn:b,literal     |v - f| < 2^-min(b, 7), so not 2^-b from b = 8 on; v = f where |f| >= 1
//   fixed:b                  |v - f| <= 2^-b, 1 <= b <= 30; v = f where |f| >= 2^(24-b)
// A sum of p contributions through hop() is within p 2^-b of the exact sum. This holds while every partial sum is below
// 2^(25-b) (2^24 steps) for `fixed`, and below 2^(24-b) for `inceptionn`. The bytes of a `fixed` sum then do not depend
// on the order of the ranks. `inceptionn` rounds again in every hop, so its sum depends on that order. (INCEPTIONN: Li
// et al., MICRO 2018. `fixed`: docs/design.md, "The lattice of `fixed`".)
class Codec {
 public:
  // The codec's row in the table of codecs: names, layout, capabilities.
  [[nodiscard]] const CodecRow& row() const noexcept { return *row_; }
  [[nodiscard]] CodecId id() const noexcept { return row_->id; }
  // All arguments after the word in its name, as the descriptor of an operation has them.
  [[nodiscard]] const CodecArguments& arguments() const noexcept { return params_.arguments; }
  // The parameter byte of packet headers: b, with kOptionBit if the option is on. A codec without b has its second
  // NumericParameter there, or 0.
  [[nodiscard]] uint8_t param() const noexcept { return params_.arguments.bits; }
  // The parts of param(): b (0 for codecs without b), and whether the option is on.
  [[nodiscard]] unsigned bits() const noexcept { return row_->max_bits != 0 ? param() & ~unsigned{kOptionBit} : 0; }
  [[nodiscard]] bool option() const noexcept { return row_->option != nullptr && (param() & kOptionBit) != 0; }
  [[nodiscard]] Isa isa() const noexcept { return isa_; }
  // Returns whether both codecs have the same name.
  [[nodiscard]] bool is(const Codec& other) const noexcept {
    return id() == other.id() && arguments() == other.arguments();
  }
  // Returns the canonical text name, which find_codec() takes: "fixed:10", "inceptionn:10,truncate".
  [[nodiscard]] std::string name() const;
  [[nodiscard]] CodecName short_name() const noexcept;  // name() without a heap allocation

  // Returns this codec for elements of bf16 or fp16, which its row must have. Wherever functions of the result have
  // floats, they then mean elements of this format, two bytes each, at the addresses of the spans.
  [[nodiscard]] Codec of(FloatForm form) const noexcept;

  // Return the most and the fewest bytes that a block of `floats` values can have.
  [[nodiscard]] size_t max_bytes(size_t floats) const noexcept { return row_->max_bytes(arguments(), floats); }
  [[nodiscard]] size_t least_bytes(size_t floats) const noexcept { return row_->least_bytes(arguments(), floats); }
  // Returns the granule: encode() and hop() cut runs only at multiples of this number of floats.
  [[nodiscard]] size_t granule() const noexcept { return row_->granule != 0 ? row_->granule : arguments().extra; }
  [[nodiscard]] bool has_feedback() const noexcept { return row_->feedback && bits() >= row_->feedback_from; }
  // Returns the number of arrays of floats that its error feedback keeps; 0 without error feedback.
  [[nodiscard]] unsigned states() const noexcept { return has_feedback() ? row_->states : 0; }
  // Returns whether sums are exact while in range. Such sums do not depend on the order of the ranks.
  [[nodiscard]] bool exact_sums() const noexcept {
    return row_->exact_sums || (row_->takes_lattice && arguments().value_bits != 0);
  }
  // Returns the bound of the difference between decode(encode(f)) and f.
  [[nodiscard]] CodecError error() const noexcept { return row_->exact() ? CodecError{} : row_->error(arguments()); }

  // ---- Preparation of one operation. Codecs without passes and without random numbers need none of this.
  //
  // Before it encodes, a rank scans its contribution in passes() passes. A pass consists of calls of scan() for all of
  // the contribution, in any pieces, and one call of end_pass(). The first pass gets a new TensorScan, and later passes
  // continue with it. If row().agreement is not kNone, all ranks then exchange the results of offer(), and agreed_on()
  // makes one number of them. finish_scan() takes this number, or 0 if ranks need not agree. After that, this object
  // encodes that operation.
  [[nodiscard]] unsigned passes() const noexcept { return row_->passes; }
  // Scans one piece. Values before TensorScan::next need no scan: a caller that skips them adds their number to
  // TensorScan::values.
  void scan(TensorScan& scan, const ScanJob& job) const noexcept {
    ops_->scan(params_, scan, job);
    scan.values += job.floats;
  }
  void end_pass(TensorScan& scan) noexcept {
    scan.next = 0;
    if (scan.pass + 1 < row_->passes) row_->finish_scan(params_, scan, 0);
    ++scan.pass;
    scan.values = 0;
  }
  [[nodiscard]] float offer(const TensorScan& scan) const noexcept {
    return row_->offer == nullptr ? 0 : row_->offer(params_, scan);
  }
  void finish_scan(TensorScan& scan, float agreed) noexcept {
    if (row_->finish_scan != nullptr) row_->finish_scan(params_, scan, agreed);
  }
  // Sets the seeds of random numbers: `of_all` is the same on all ranks, `own` is that of this rank. A random number
  // depends only on a seed and on an element's position in the tensor. So encoding an element again gives the same
  // bits.
  void seed(uint64_t of_all, uint64_t own) noexcept {
    params_.seed = of_all;
    params_.own_seed = own;
  }
  // Returns whether contributions are encoded differently from sums. Such a codec is for reductions only.
  [[nodiscard]] bool selects() const noexcept { return passes() != 0 || finishes() || ops_->encode_sum != nullptr; }
  // Returns the same codec for results, which are encoded with encode_sum() and decoded.
  [[nodiscard]] Codec for_results() const noexcept {
    Codec codec = *this;
    codec.params_.result = true;
    return codec;
  }

  // Encodes as many floats of `in` as fit into `out`: all of them, or the largest multiple of granule() whose block
  // fits. Returns how many floats it consumed and how many bytes it wrote. If granule() is not 1 and `out` is smaller
  // than max_bytes(), it uses at most kMaxPacket bytes of `out`. To fill a packet, pass an `out` of the packet's size.
  // To encode all of a tensor, pass an `out` of max_bytes().
  [[nodiscard]] EncodeResult encode(std::span<const float> in, std::span<uint8_t> out) const noexcept {
    return ops_->encode(params_, {in.data(), nullptr, in.size(), out.data(), out.size()});
  }

  // Encodes with error feedback; only for codecs with has_feedback(). Encodes x = in + residual, and leaves x -
  // decode(encode(x)) in `residual` (0 where x is Inf or NaN). `residual` has in.size() values. The residuals of floats
  // that were not consumed do not change.
  [[nodiscard]] EncodeResult encode_feedback(std::span<const float> in, float* residual,
                                             std::span<uint8_t> out) const noexcept {
    return ops_->encode(params_, {in.data(), residual, in.size(), out.data(), out.size()});
  }

  // Encodes a contribution with its position and its state arrays, `residual` and `second`, as many as states(). Both
  // are null if no state is kept.
  [[nodiscard]] EncodeResult encode(const EncodeJob& job) const noexcept { return ops_->encode(params_, job); }

  // Encodes sums or results. If all values came from decode(), they are encoded without loss: nothing is selected, and
  // no state is used. Codecs that are not additive (row().is_additive) are an exception. They round the sum that an
  // owner has computed, and use the owner's states.
  [[nodiscard]] EncodeResult encode_sum(const EncodeJob& job) const noexcept {
    return ops_->encode_sum != nullptr ? ops_->encode_sum(params_, job) : ops_->encode(params_, job);
  }

  // finishes() returns whether finish() must turn the sums of all contributions into results, as in a vote. finish()
  // does that in place; for other codecs it does nothing. `position` is the position of sums[0] in the tensor.
  [[nodiscard]] bool finishes() const noexcept { return ops_->finish != nullptr; }
  void finish(std::span<float> sums, uint64_t position) const noexcept {
    if (finishes()) ops_->finish(params_, sums.data(), sums.size(), position);
  }

  // Checks a block of `floats` values by its length, its tags and its escapes, without reading the payload. decode(),
  // decode_add() and hop() return kOk for a valid block.
  [[nodiscard]] Status validate(std::span<const uint8_t> block, size_t floats) const noexcept {
    return ops_->validate(params_, block.data(), block.size(), floats);
  }

  // Decodes a block of out.size() values. If the status is not kOk, the content of `out` is unspecified: call
  // validate() first where that matters.
  [[nodiscard]] Status decode(std::span<const uint8_t> block, std::span<float> out) const noexcept {
    return ops_->decode(params_, block.data(), block.size(), out.data(), out.size());
  }

  // Adds decode(block) to `accumulator`. If the status is not kOk, the content of `accumulator` is unspecified.
  [[nodiscard]] Status decode_add(std::span<const uint8_t> block, std::span<float> accumulator) const noexcept {
    return ops_->decode_add(params_, block.data(), block.size(), accumulator.data(), accumulator.size());
  }

  // Does one reduce hop in one pass: decodes `block` (of local.size() values), adds `local` and encodes the sum into
  // `out`. `fixed` rounds `local` to its lattice and adds exactly. `inceptionn` without an option
  // rounds `local` to multiples of its finest step, 2^-15, and rounds the sum again.
  //
  // The hop starts at float `first` (a multiple of granule(), at most local.size()), and stops as encode() does when
  // `out` is full. Call it again with `first` advanced by the result's floats: the rest becomes a block of its own. A
  // hop that stops early may have checked only the part of the block that it read. If the status is not kOk, the
  // content of `out` is unspecified, and floats and bytes are 0.
  [[nodiscard]] HopResult hop(std::span<const uint8_t> block, std::span<const float> local, std::span<uint8_t> out,
                              size_t first = 0) const noexcept {
    return hop_feedback(block, local, nullptr, out, first);
  }

  // Does a hop with error feedback; only for codecs with has_feedback(). Adds x = local + residual, and leaves the
  // rounding error of x in `residual` (local.size() values), as encode_feedback() does. If the status is not kOk, the
  // residuals of floats that were read are unspecified.
  [[nodiscard]] HopResult hop_feedback(std::span<const uint8_t> block, std::span<const float> local, float* residual,
                                       std::span<uint8_t> out, size_t first = 0) const noexcept {
    return ops_->hop(params_,
                     {block.data(), block.size(), local.data(), residual, local.size(), first, out.data(), out.size()});
  }
  // Does a hop with the contribution's position and all its state arrays; see encode().
  [[nodiscard]] HopResult hop(const HopJob& job) const noexcept { return ops_->hop(params_, job); }

  // Joins two adjacent blocks of a packet in place: `block` has a valid block of a multiple of 32 floats, then another
  // one. Afterwards it has one block of all their floats. If encode() made both blocks, the result is what encode()
  // makes of all floats in one go. Returns the bytes of the joined block, which may be fewer than those of the two.
  size_t join(uint8_t* block, BlockSize first, BlockSize second) const noexcept {
    return row_->join == nullptr ? first.bytes + second.bytes : row_->join(block, first, second);
  }

 private:
  friend std::optional<Codec> find_codec(CodecId, const CodecArguments&, Isa) noexcept;
  Codec() = default;

  const CodecRow* row_ = nullptr;
  const CodecOps* ops_ = nullptr;
  CodecParams params_{};
  Isa isa_ = Isa::kScalar;
};

// Returns the number that ranks agree on: the greatest or the mean of their offers, which must be in the order of
// ranks.
[[nodiscard]] float agreed_on(Agreement agreement, std::span<const float> offers) noexcept;

// Returns the codec of a text name; codec_help() lists the names. Throws SetupError for any other name, and if
// GRADLANE_ISA is not usable here. The first line of the message says what is wrong. The next lines show how names with
// that word are written or, if there is no such word, all names.
[[nodiscard]] Codec find_codec(std::string_view name);
[[nodiscard]] Codec find_codec(std::string_view name, Isa isa);

// Returns the codec of these arguments, or nothing if there is none. The CPU must support `isa`.
[[nodiscard]] std::optional<Codec> find_codec(CodecId id, const CodecArguments& arguments, Isa isa) noexcept;
// Returns the codec that a packet header names: one that has no other arguments.
[[nodiscard]] std::optional<Codec> find_codec(CodecId id, uint8_t param, Isa isa) noexcept;

// Returns the codec whose blocks are arrays of this format, which must not be kNone. The codec of kFp32 is exact.
[[nodiscard]] Codec codec_of(FloatForm form, Isa isa) noexcept;

// Returns the names of codecs that `mode: accelerator` accepts, sorted: "fixed:B", ...
[[nodiscard]] std::vector<std::string> accelerator_codecs();

// Returns one line per codec: how to write its name, and what it promises. A `word` that is not empty limits this to
// codecs with that word.
[[nodiscard]] std::string codec_help(std::string_view word = "");

}  // namespace gradlane
