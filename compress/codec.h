// codec.h - codecs: what each promises, and the functions a packet path calls
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

// What new configurations use: exact unless asked.
inline constexpr std::string_view kDefaultCodec = "raw";
// Where being lossy is what was asked for: accelerators, measurements of codecs.
inline constexpr std::string_view kDefaultLossyCodec = "fixed:10";

// Of a name in characters, whoever writes it: configurations, command lines, trainers. None that there is needs more.
inline constexpr size_t kLongestCodecName = 63;
using CodecName = FixedText<kLongestCodecName + 1>;

// One codec with its parameter, bound to the kernels of one instruction set. A small value: copy it, keep it in set-up
// state, call it per packet.
//
// A *block* is what one call of encode() or hop() writes: the compressed form of a run of fp32 values. Its length in
// floats is not part of it; whoever sends a block sends that count beside it. docs/codec-format.md has every bit of it.
//
// Common to all functions below:
// - They are pure: no heap, no lock, no exception, no state. They assume the default MXCSR (round to nearest even, no
//   flush-to-zero), and never change it.
// - Nothing outside the given spans is read or written, whatever the bytes are. No slack, no alignment is asked for:
//   the float spans may lie at odd addresses too.
// - Outputs must not overlap inputs. Bytes of an output behind the result's length may have been written.
// - Every ISA gives the same bytes, the ones the scalar kernels give.
// - NaN and Inf survive encode() and decode() with their payload bits (bf16 and fp16 keep the upper ones and set the
//   quiet bit). Where two values are *added*, a NaN result is always 0x7fc00000, so that the order of the ranks cannot
//   leak into the bytes.
//
// Error per contribution, for the value v that decode(encode(f)) gives (b is the codec's parameter):
//   raw                      v = f
//   bf16, fp16               |v - f| <= |f| 2^-8 (bf16), |f| 2^-11 (fp16) while f is in the format's normal
//                            range; below it |v - f| <= 2^-134 (bf16), 2^-25 (fp16); what rounds past the largest
//                            number becomes Inf
//   inceptionn:b[,truncate]  |v - f| < 2^-b, 2 <= b <= 14; v = f where |f| >= 1
//   fixed:b                  |v - f| <= 2^-b, 1 <= b <= 30; v = f where |f| >= 2^(24-b)
// A sum of p contributions through hop() stays within p 2^-b of the exact one while every partial sum stays below
// 2^(25-b) for `fixed` (2^24 steps), 2^(24-b) for `inceptionn`. That of `fixed` does not depend on the order of the
// ranks then, to the byte; `inceptionn` rounds again in every hop, and its sum does.
// (INCEPTIONN: Li et al., MICRO 2018. `fixed`: docs/design.md.)
class Codec {
 public:
  // What is known of it: names, layout, capabilities.
  [[nodiscard]] const CodecRow& row() const noexcept { return *row_; }
  [[nodiscard]] CodecId id() const noexcept { return row_->id; }
  // All that its name says behind the word, as operations' descriptors have it.
  [[nodiscard]] const CodecArguments& arguments() const noexcept { return params_.arguments; }
  // Of these, what a packet header has: b, with kOptionBit where the codec's option is on; 0 for codecs without one.
  [[nodiscard]] uint8_t param() const noexcept { return params_.arguments.bits; }
  // What it is made of: b (0 for codecs without one), and whether the option is on.
  [[nodiscard]] unsigned bits() const noexcept { return row_->max_bits != 0 ? param() & ~unsigned{kOptionBit} : 0; }
  [[nodiscard]] bool option() const noexcept { return row_->option != nullptr && (param() & kOptionBit) != 0; }
  [[nodiscard]] Isa isa() const noexcept { return isa_; }
  // It has the same name.
  [[nodiscard]] bool is(const Codec& other) const noexcept {
    return id() == other.id() && arguments() == other.arguments();
  }
  // The canonical text name, which find_codec() takes: "fixed:10", "inceptionn:10,truncate".
  [[nodiscard]] std::string name() const;
  [[nodiscard]] CodecName short_name() const noexcept;  // the same, allocating nothing

  // Bytes that a block of `floats` values can never exceed, and that it has at least.
  [[nodiscard]] size_t max_bytes(size_t floats) const noexcept { return row_->max_bytes(arguments(), floats); }
  [[nodiscard]] size_t least_bytes(size_t floats) const noexcept { return row_->least_bytes(arguments(), floats); }
  // Where a run may be cut: encode() and hop() stop at multiples of this many floats only.
  [[nodiscard]] size_t granule() const noexcept { return row_->granule != 0 ? row_->granule : arguments().extra; }
  [[nodiscard]] bool has_feedback() const noexcept { return row_->feedback && bits() >= row_->feedback_from; }
  // Arrays of floats that its error feedback keeps; 0: it has none.
  [[nodiscard]] unsigned states() const noexcept { return has_feedback() ? row_->states : 0; }
  // Adds without rounding while in range: sums do not depend on the order of the ranks.
  [[nodiscard]] bool exact_sums() const noexcept {
    return row_->exact_sums || (row_->takes_lattice && arguments().value_bits != 0);
  }
  // How far decode(encode(f)) may be from f.
  [[nodiscard]] CodecError error() const noexcept { return row_->exact() ? CodecError{} : row_->error(arguments()); }

  // ---- One operation. Codecs that need nothing known of it can do without all of this.
  //
  // A contribution is *looked at* in `passes` passes of look() over all of it, in any pieces, each pass followed by
  // pass_over(), with a Look that was made anew for the first one. Then, where row().agreement is one, all ranks tell
  // each other their offer(), and settle() gets what they agree on: agreed_on() of these, rank by rank. From then on
  // this codec encodes that operation.
  [[nodiscard]] unsigned passes() const noexcept { return row_->passes; }
  // What is in front of Look::next need not be looked at; who skips it adds it to Look::values.
  void look(Look& look, const LookJob& job) const noexcept {
    ops_->look(params_, look, job);
    look.values += job.floats;
  }
  void pass_over(Look& look) noexcept {
    look.next = 0;
    if (look.pass + 1 < row_->passes) row_->settle(params_, look, 0);
    ++look.pass;
    look.values = 0;
  }
  [[nodiscard]] float offer(const Look& look) const noexcept {
    return row_->offer == nullptr ? 0 : row_->offer(params_, look);
  }
  void settle(Look& look, float agreed) noexcept {
    if (row_->settle != nullptr) row_->settle(params_, look, agreed);
  }
  // Random numbers are pure functions of these, `own` of one rank, and of an element's place in the tensor: what is
  // encoded again has the same bits.
  void seed(uint64_t of_all, uint64_t own) noexcept {
    params_.seed = of_all;
    params_.own_seed = own;
  }
  // Of contributions it makes something else than of sums: it is for what is summed, and for nothing else.
  [[nodiscard]] bool selects() const noexcept { return passes() != 0 || finishes() || ops_->represent != nullptr; }
  // The same codec for results, which it encodes with represent() and decodes.
  [[nodiscard]] Codec for_results() const noexcept {
    Codec codec = *this;
    codec.params_.result = true;
    return codec;
  }

  // Encodes as many floats of `in` as fit into `out`: all of them, or the largest multiple of granule() whose block
  // fits. Returns what went in and what came out. Where granule() is not 1 and `out` is below max_bytes(), at most
  // kMaxPacket bytes of it are used, so: pass a packet's room to fill a packet, max_bytes() to encode a tensor of any
  // size.
  [[nodiscard]] EncodeResult encode(std::span<const float> in, std::span<uint8_t> out) const noexcept {
    return ops_->encode(params_, {in.data(), nullptr, in.size(), out.data(), out.size()});
  }

  // The same with error feedback, where has_feedback(): encodes x = in + residual and leaves x - decode(encode(x)) in
  // residual (0 where x is Inf or NaN). residual has in.size() values; those of floats that were not consumed stay as
  // they are.
  [[nodiscard]] EncodeResult encode_feedback(std::span<const float> in, float* residual,
                                             std::span<uint8_t> out) const noexcept {
    return ops_->encode(params_, {in.data(), residual, in.size(), out.data(), out.size()});
  }

  // The same with all that there is to know of a contribution. `residual` and `second` are the state arrays, as many as
  // states(); both are null where nothing is kept.
  [[nodiscard]] EncodeResult encode(const EncodeJob& job) const noexcept { return ops_->encode(params_, job); }

  // Encodes sums, or results, which are decode() of something, so that they decode to the same: nothing is selected,
  // and no state is kept, but for codecs that do not add, which round what an owner has summed up: these take the
  // owner's states.
  [[nodiscard]] EncodeResult represent(const EncodeJob& job) const noexcept {
    return ops_->represent != nullptr ? ops_->represent(params_, job) : ops_->encode(params_, job);
  }

  // Makes results of sums of all contributions, in place: the winners of a vote. `position` is that of the first one.
  [[nodiscard]] bool finishes() const noexcept { return ops_->finish != nullptr; }
  void finish(std::span<float> sums, uint64_t position) const noexcept {
    if (finishes()) ops_->finish(params_, sums.data(), sums.size(), position);
  }

  // Checks a block of `floats` values by its length, its tags and its escapes, without reading the payload. decode(),
  // decode_add() and hop() of a valid block return kOk.
  [[nodiscard]] Status validate(std::span<const uint8_t> block, size_t floats) const noexcept {
    return ops_->validate(params_, block.data(), block.size(), floats);
  }

  // Decodes a block of out.size() values. Unless kOk is returned, the content of `out` is unspecified: call validate()
  // first where that matters.
  [[nodiscard]] Status decode(std::span<const uint8_t> block, std::span<float> out) const noexcept {
    return ops_->decode(params_, block.data(), block.size(), out.data(), out.size());
  }

  // accumulator += decode(block), under the same rules.
  [[nodiscard]] Status decode_add(std::span<const uint8_t> block, std::span<float> accumulator) const noexcept {
    return ops_->decode_add(params_, block.data(), block.size(), accumulator.data(), accumulator.size());
  }

  // One reduce hop in one pass: decodes `block` (of local.size() values), adds `local` and encodes the sum into `out`.
  // `fixed` rounds `local` to its lattice and adds exactly; so does `inceptionn` (but for truncate) with its finest
  // step, 2^-15, and rounds the sum again. Takes floats from `first` (a multiple of granule(), at most local.size())
  // on, and stops as encode() does when `out` is full; call again with `first` advanced by the result's floats to get
  // the rest as a block of its own. A hop that stops early may have checked only as much of the block as it read.
  // Unless the status is kOk, the content of `out` is unspecified and floats and bytes are 0.
  [[nodiscard]] HopResult hop(std::span<const uint8_t> block, std::span<const float> local, std::span<uint8_t> out,
                              size_t first = 0) const noexcept {
    return hop_feedback(block, local, nullptr, out, first);
  }

  // The same with error feedback, where has_feedback(): adds x = local + residual and leaves the rounding error of x
  // in residual (local.size() values), as encode_feedback() does. After a bad status the residual of floats that were
  // read is unspecified.
  [[nodiscard]] HopResult hop_feedback(std::span<const uint8_t> block, std::span<const float> local, float* residual,
                                       std::span<uint8_t> out, size_t first = 0) const noexcept {
    return ops_->hop(params_,
                     {block.data(), block.size(), local.data(), residual, local.size(), first, out.data(), out.size()});
  }
  // The same with all that there is to know of the contribution; see encode().
  [[nodiscard]] HopResult hop(const HopJob& job) const noexcept { return ops_->hop(params_, job); }

  // Two blocks of a packet that stand one right behind the other become one, in place: `block` has a valid block of a
  // multiple of 32 floats, then another one. Afterwards it has the block of all of them, what encode() makes of the
  // floats in one go, if it made the two. Returns its bytes, which may be fewer than those of the two.
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

// What ranks agree on, of their offers in the order of ranks: the greatest, or the mean.
[[nodiscard]] float agreed_on(Agreement agreement, std::span<const float> offers) noexcept;

// The codec of a text name, as codec_help() has them. Throws SetupError for anything else, and when GRADLANE_ISA is not
// usable here. Its first line says what is wrong; behind it is how names with that word are written or, where there is
// no such word, all there are.
[[nodiscard]] Codec find_codec(std::string_view name);
[[nodiscard]] Codec find_codec(std::string_view name, Isa isa);

// The codec of these arguments, or nothing if there is none. The CPU must support `isa`.
[[nodiscard]] std::optional<Codec> find_codec(CodecId id, const CodecArguments& arguments, Isa isa) noexcept;
// The same where a packet header names it: one that has no other arguments.
[[nodiscard]] std::optional<Codec> find_codec(CodecId id, uint8_t param, Isa isa) noexcept;

// The codec whose blocks are arrays of this format, which is not kNone; that of fp32 is exact.
[[nodiscard]] Codec codec_of(FloatForm form, Isa isa) noexcept;

// Those that are fit for `mode: accelerator`, sorted: "fixed:B", ...
[[nodiscard]] std::vector<std::string> accelerator_codecs();

// One line per codec, of this word if there is one: how to write its name, and what it promises.
[[nodiscard]] std::string codec_help(std::string_view word = "");

}  // namespace gradlane
