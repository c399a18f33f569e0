// coder.h - encoding of an operation's elements: through a codec that serves their type, except minima and maxima; all
// others unchanged
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "collectives/operation.h"
#include "collectives/wire.h"
#include "compress/codec.h"

namespace gradlane {

struct ElementOps;

// Returns whether the shortest run that the codec allows always fits into a packet of `mtu` bytes.
[[nodiscard]] inline bool fits_packet(const Codec& codec, size_t mtu) noexcept {
  return codec.max_bytes(codec.granule()) + sizeof(LinkHeader) + sizeof(RunHeader) <= mtu;
}

// Returns the text for a codec that does not fit: what is wrong, and what to do. `around`: bytes of IP around a packet,
// which the text adds to the MTU.
[[nodiscard]] FailureText packet_fault(const Codec& codec, size_t mtu, size_t around) noexcept;

// Computes out = a + b, or the minimum or maximum of two elements, for `count` elements. `out` overlaps neither input.
// `codec`: the codec of the Coder that calls.
using ElementCombine = void (*)(const Codec& codec, const uint8_t* a, const uint8_t* b, uint8_t* out,
                                size_t count) noexcept;

// An ElementContext describes the first of the elements that are passed with it. Its two state pointers are for error
// feedback. They may be null, and their arrays are not touched if the codec has no feedback.
struct ElementContext {
  float* residual = nullptr;
  float* second = nullptr;
  uint64_t position = 0;  // position of the first element in the whole tensor
};

// A Coder is made once, when an operation starts. It is a small value: copy it.
//
// It writes and reads the payload of runs, which is called a block like that of a Codec. Elements of types that the
// given codec serves go through it, but not minima and maxima, and not if it rounds once. All other blocks are the
// elements, little-endian, and nothing else. Statements about sums below hold for minima and maxima too, where the
// operation asks for them.
//
// All functions are pure: they use no heap, lock, exception or state. They read and write nothing outside the given
// spans, whatever the bytes are. Elements, residuals and blocks may lie at any address. A pointer to no bytes may be
// null. Outputs must not overlap inputs.
//
// Every CPU gives the same bytes. A sum that is NaN is always the same NaN of its type: 0x7fc00000 (fp32), 0x7ff8 and
// zeros (fp64), 0x7e00 (fp16), 0x7fc0 (bf16). Elements that are not added keep their bits, except for what the codec
// changes.
//
// Minima and maxima are those of IEEE 754-2019 (minimum, maximum): NaN where either is NaN, and -0 < +0. They are
// exact, and do not depend on the order of the ranks.
class Coder {
 public:
  // `codec` is the codec of the types that it serves. Other types use its instruction set.
  Coder(ElementType type, const Codec& codec, Reduction reduction = Reduction::kSum) noexcept;

  [[nodiscard]] size_t element_bytes() const noexcept { return element_bytes_; }
  // Returns the number of elements in kGranuleBytes bytes. Runs begin and are cut at multiples of this.
  [[nodiscard]] size_t granule() const noexcept { return granule_; }
  // Returns the unit, in elements, at whose multiples the codec lets runs be cut. It is a multiple of granule().
  [[nodiscard]] size_t cut() const noexcept { return cut_; }
  // Returns the least free space, in bytes, with which encoding of one cut() is worth a try. The elements may still
  // need more.
  [[nodiscard]] size_t least_room() const noexcept { return least_room_; }
  // Return the codec and its parameter for run headers: kNoCodec and 0 for all elements that do not go through a codec.
  [[nodiscard]] CodecId codec_id() const noexcept { return id_; }
  [[nodiscard]] uint8_t codec_param() const noexcept { return param_; }
  // Returns a number of bytes that a block of `elements` elements never exceeds.
  [[nodiscard]] size_t max_bytes(size_t elements) const noexcept;

  // Encodes as many of `count` elements, a rank's contribution, as fit into `out`: all of them, or a multiple of cut();
  // never more than kMaxRunElements. Returns the elements that went in (`floats`) and the bytes that came out.
  [[nodiscard]] EncodeResult encode(const void* elements, size_t count, const ElementContext& origin,
                                    std::span<uint8_t> out) const noexcept;

  // Does the same as encode() for sums and results, which Codec::encode_sum() encodes.
  [[nodiscard]] EncodeResult encode_sum(const void* elements, size_t count, const ElementContext& origin,
                                        std::span<uint8_t> out) const noexcept;

  // Returns whether sums of all contributions are not yet results. finish() then turns them into results, in place:
  // Codec::finish().
  [[nodiscard]] bool finishes() const noexcept { return coded() && codec_.finishes(); }
  // Returns Codec::selects() if elements go through the codec, else false.
  [[nodiscard]] bool selects() const noexcept { return coded() && codec_.selects(); }
  void finish(void* sums, size_t count, uint64_t position) const noexcept;

  // Checks a block of `count` elements. decode() and hop() of a valid block return kOk.
  [[nodiscard]] Status validate(std::span<const uint8_t> block, size_t count) const noexcept;

  // Adds the `count` elements of `block`, at most kMaxRunElements, to those at `local`, and makes a block of the sums.
  // It takes elements from `first` on, which is a multiple of cut() and at most `count`, and it stops where encode()
  // would stop. Call it again with `first` advanced by the result's floats, to get the rest as a separate block.
  // `local` and the states have `count` elements, and those before `first` are skipped. Unless the status is kOk, the
  // content of `out` and of the states is unspecified, and floats and bytes are 0.
  [[nodiscard]] HopResult hop(std::span<const uint8_t> block, const void* local, size_t count,
                              const ElementContext& origin, std::span<uint8_t> out, size_t first = 0) const noexcept;

  // Adds the `count` elements of `block` to those at `accumulator`, in place: Codec::decode_add(), or, for elements
  // that go through no codec, the sums of hop(). Unless the status is kOk, the content of `accumulator` is unspecified.
  [[nodiscard]] Status add(std::span<const uint8_t> block, void* accumulator, size_t count) const noexcept;

  // Writes the `count` elements of a block to `out`, whose content is unspecified unless the status is kOk.
  [[nodiscard]] Status decode(std::span<const uint8_t> block, void* out, size_t count) const noexcept;

  // Returns whether sums are made by sum_exactly(), and by nothing else: CodecRow::rounds_once.
  [[nodiscard]] bool rounds_once() const noexcept { return rounds_once_; }
  // Writes the sums of `arrays` arrays, or their averages over `divisor` ranks, each rounded once (exact_sum.h). `out`
  // may be one of the arrays.
  void sum_exactly(const void* const* in, unsigned arrays, unsigned divisor, void* out, size_t count) const noexcept;

  // Joins two blocks, the second right after the first, into one block of all elements: Codec::join(). The first block
  // has a multiple of cut() elements. Returns the bytes of the joined block.
  size_t join(uint8_t* block, BlockSize first, BlockSize second) const noexcept;

  // Divides sums by `world`, in place, to make averages. The quotient is rounded to nearest even; a NaN becomes the NaN
  // of sums. 1 <= world <= kMaxWorld. Not for integers and bytes.
  void divide(void* elements, size_t count, unsigned world) const noexcept;

 private:
  [[nodiscard]] bool coded() const noexcept { return coded_; }
  [[nodiscard]] size_t run_room(size_t elements, size_t room) const noexcept;
  [[nodiscard]] EncodeJob job(const void* elements, size_t count, const ElementContext& origin,
                              std::span<uint8_t> out) const noexcept;
  [[nodiscard]] EncodeResult as_it_is(const void* elements, size_t count, std::span<uint8_t> out) const noexcept;

  bool rounds_once_;
  bool coded_;
  Codec kernels_;           // for fp16 and bf16 the codec that converts them; else any
  Codec codec_;             // of elements that go through a codec
  const ElementOps* ops_;   // arithmetic of the type
  ElementCombine combine_;  // function of `ops_` for the reduction; null where the codec adds
  size_t element_bytes_;
  size_t granule_;
  size_t cut_;
  size_t least_room_;
  size_t width_;  // bytes per element in a block; 0 if they depend on the elements
  CodecId id_;
  uint8_t param_;
};

}  // namespace gradlane
