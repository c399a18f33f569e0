// coder.h - how the elements of one operation travel: sums of fp32 through a codec, all else as it is
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "collectives/operation.h"
#include "collectives/wire.h"
#include "compress/codec.h"

namespace gradlane {

struct ElementOps;

// A run as short as the codec lets them be cut goes into any packet of so many bytes.
[[nodiscard]] inline bool fits_packet(const Codec& codec, size_t mtu) noexcept {
  return codec.max_bytes(codec.granule()) + sizeof(LinkHeader) + sizeof(RunHeader) <= mtu;
}

// Why it does not, and what to do. So many bytes are around packets, and belong to the MTU of IP.
[[nodiscard]] FailureText packet_fault(const Codec& codec, size_t mtu, size_t around) noexcept;

// out = a + b, or what else the operation makes of two elements; `out` overlaps neither. `codec` is the Coder's.
using ElementCombine = void (*)(const Codec& codec, const uint8_t* a, const uint8_t* b, uint8_t* out,
                                size_t count) noexcept;

// Chosen once, when an operation starts. A small value: copy it.
//
// It writes and reads the payload of runs, called blocks as those of a Codec. fp32 goes through the codec given, but
// for minima and maxima. All other blocks are the elements, little-endian, and nothing else.
//
// What is said of sums below holds for minima and maxima too, where the operation asks for them.
//
// Common to all functions below:
// - They are pure: no heap, no lock, no exception, no state.
// - Nothing outside the given spans is read or written, whatever the bytes are. Elements, residuals and blocks may lie
//   at any address; what has no bytes may be null.
// - Outputs must not overlap inputs.
// - Every CPU gives the same bytes. A sum that is NaN is always the same NaN of its type: 0x7fc00000, 0x7ff8 and zeros,
//   0x7e00 (fp16), 0x7fc0 (bf16); whatever is not added keeps its bits, but for what the codec of fp32 does.
// - Minima and maxima are those of IEEE 754-2019 (minimum, maximum): NaN where either is NaN, and -0 < +0. They are
//   exact, and do not depend on the order of the ranks.
//
// An Origin belongs to the same first element as the elements beside it. Its states are for error feedback. They may be
// null, and are not touched where the codec has no feedback.
struct Origin {
  float* residual = nullptr;
  float* second = nullptr;
  uint64_t position = 0;  // of the first element in the whole tensor
};

class Coder {
 public:
  // `codec` is that of fp32; its instruction set serves other types too.
  Coder(ElementType type, const Codec& codec, Reduction reduction = Reduction::kSum) noexcept;

  [[nodiscard]] size_t element_bytes() const noexcept { return element_bytes_; }
  // Elements in kGranuleBytes bytes: runs begin and are cut at multiples of this.
  [[nodiscard]] size_t granule() const noexcept { return granule_; }
  // Where the codec lets runs be cut: multiples of this many elements, which is a multiple of granule().
  [[nodiscard]] size_t cut() const noexcept { return cut_; }
  // With less room, elements up to a cut need not be tried; with it, they may still need more.
  [[nodiscard]] size_t least_room() const noexcept { return least_room_; }
  // What a run header says: kNoCodec and 0 for all that does not go through a codec.
  [[nodiscard]] CodecId codec_id() const noexcept { return id_; }
  [[nodiscard]] uint8_t codec_param() const noexcept { return param_; }
  // Bytes that a block of so many elements can never exceed.
  [[nodiscard]] size_t max_bytes(size_t elements) const noexcept;

  // Makes a block of as many of `count` elements, a rank's contribution, as fit into `out`: all of them, or a multiple
  // of cut(); never more than kMaxRunElements. Returns what went in (its `floats` are elements) and what came out.
  [[nodiscard]] EncodeResult encode(const void* elements, size_t count, const Origin& origin,
                                    std::span<uint8_t> out) const noexcept;

  // The same of sums and results: Codec::represent().
  [[nodiscard]] EncodeResult represent(const void* elements, size_t count, const Origin& origin,
                                       std::span<uint8_t> out) const noexcept;

  // Makes results of sums of all contributions, in place: Codec::finish().
  [[nodiscard]] bool finishes() const noexcept { return coded() && codec_.finishes(); }
  // Codec::selects()
  [[nodiscard]] bool selects() const noexcept { return coded() && codec_.selects(); }
  void finish(void* sums, size_t count, uint64_t position) const noexcept;

  // Checks a block of `count` elements. decode() and hop() of a valid block return kOk.
  [[nodiscard]] Status validate(std::span<const uint8_t> block, size_t count) const noexcept;

  // Adds the `count` elements of `block`, at most kMaxRunElements, to those at `local` and makes a block of the sums,
  // from element `first` (a multiple of cut(), at most `count`) on, cut as encode() cuts. Call again with `first`
  // advanced by the result's floats to get the rest as a block of its own. `local` and the states have `count` elements
  // and are left out up to `first`, too. Unless the status is kOk, the content of `out` and of the states is
  // unspecified, and floats and bytes are 0.
  [[nodiscard]] HopResult hop(std::span<const uint8_t> block, const void* local, size_t count, const Origin& origin,
                              std::span<uint8_t> out, size_t first = 0) const noexcept;

  // Adds the `count` elements of `block` to those at `accumulator`, in place: Codec::decode_add(), or what hop() would
  // make of them. Unless the status is kOk, what is at `accumulator` is unspecified.
  [[nodiscard]] Status add(std::span<const uint8_t> block, void* accumulator, size_t count) const noexcept;

  // Writes the `count` elements of a block to `out`, whose content is unspecified unless the status is kOk.
  [[nodiscard]] Status decode(std::span<const uint8_t> block, void* out, size_t count) const noexcept;

  // Two blocks, one right behind the other, become the block of all elements: Codec::join(). The first one has a
  // multiple of cut(). Returns its bytes.
  size_t join(uint8_t* block, BlockSize first, BlockSize second) const noexcept;

  // Makes averages of sums, in place: divides, rounded to nearest even; a NaN becomes that of sums. 1 <= world <=
  // kMaxWorld. Not for integers and bytes.
  void divide(void* elements, size_t count, unsigned world) const noexcept;

 private:
  [[nodiscard]] bool coded() const noexcept { return coded_; }
  [[nodiscard]] size_t run_room(size_t elements, size_t room) const noexcept;
  [[nodiscard]] EncodeJob job(const void* elements, size_t count, const Origin& origin,
                              std::span<uint8_t> out) const noexcept;
  [[nodiscard]] EncodeResult as_it_is(const void* elements, size_t count, std::span<uint8_t> out) const noexcept;

  Codec codec_;             // of fp32; for fp16 and bf16 the one that converts them
  const ElementOps* ops_;   // arithmetic of the type
  ElementCombine combine_;  // of these, the one that makes sums; null where the codec does
  size_t element_bytes_;
  size_t granule_;
  size_t cut_;
  size_t least_room_;
  size_t width_;  // bytes per element in a block; 0: it depends
  bool coded_;
  CodecId id_;
  uint8_t param_;
};

}  // namespace gradlane
