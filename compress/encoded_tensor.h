// encoded_tensor.h - a whole contribution, encoded before an operation: blocks, and a table of where they begin
//
// docs/codec-format.md, "Encoded tensors", has the layout. A rank can keep such a tensor, and hand it over again if an
// operation has to be repeated: it is shorter than the floats, and it is rounded once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "compress/codec.h"

namespace gradlane {

inline constexpr size_t kEncodedBlock = 4096;   // floats of a block; the last block may have fewer
inline constexpr size_t kEncodedGroup = 32;     // floats of a group, which no run divides
inline constexpr size_t kMostEncodedBytes = 5;  // most bytes a float, of whole groups of 32

// Returns whether tensors can be encoded by this codec: decoding and encoding again gives the same block.
[[nodiscard]] bool encodes_tensors(const Codec& codec) noexcept;

// Return the most bytes of an encoded tensor, and the bytes of its table.
[[nodiscard]] size_t max_encoded_bytes(const Codec& codec, size_t floats) noexcept;
[[nodiscard]] constexpr size_t encoded_table_bytes(size_t floats) noexcept {
  return ((floats + kEncodedBlock - 1) / kEncodedBlock + 1) * sizeof(uint64_t);
}

// An encoded tensor that another process may have written, and may be writing now. Nothing outside `bytes` is read.
class EncodedTensor {
 public:
  EncodedTensor(std::span<const uint8_t> bytes, size_t floats) noexcept : bytes_(bytes), floats_(floats) {}

  // Decodes out.size() floats from the float `first` on. Returns false if the table or a block is malformed; the
  // content of `out` is then unspecified. first + out.size() <= floats.
  [[nodiscard]] bool decode(const Codec& codec, size_t first, std::span<float> out) const noexcept;

 private:
  [[nodiscard]] std::optional<std::span<const uint8_t>> block(size_t number) const noexcept;

  std::span<const uint8_t> bytes_;
  size_t floats_;
};

// Encodes the floats of a tensor from `first` on, in whole blocks; `first` is a multiple of kEncodedBlock. All floats
// before it have been encoded. Returns false if a block might not fit, which max_encoded_bytes() exclude, or if another
// process has changed the table. The length is the last number of the table.
[[nodiscard]] bool encode_tensor(const Codec& codec, std::span<const float> in, size_t first, size_t floats,
                                 std::span<uint8_t> bytes) noexcept;

}  // namespace gradlane
