// decoded_blocks.h - blocks of encoded contributions that were decoded for one run, for the next ones (lane's thread)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "collectives/operation.h"
#include "collectives/wire.h"
#include "compress/encoded_tensor.h"

namespace gradlane {

// Runs are shorter than blocks, or end inside one. So decoded blocks are kept until other ones need the memory. There
// are several buffers, because runs of this rank alternate with those that pass, and operations with one another.
class DecodedBlocks {
 public:
  // Returns `count` floats, at most kMaxRunElements, of an encoded contribution from its float `first` on. They are
  // valid until the next call. Returns null if a block is malformed. `operation`: a number that no other operation has.
  [[nodiscard]] const float* get(uint64_t operation, const EncodedContribution& coded, size_t first,
                                 size_t count) noexcept;

 private:
  static constexpr size_t kFloats = kMaxRunElements + 2 * kEncodedBlock;

  // Whole blocks: floats [begin, end) of a contribution.
  struct Buffer {
    std::optional<uint64_t> operation;
    size_t begin = 0;
    size_t end = 0;
    uint64_t used = 0;  // number of the latest call that has used it
    std::unique_ptr<float[]> floats = std::make_unique_for_overwrite<float[]>(kFloats);
  };

  [[nodiscard]] Buffer& buffer_for(uint64_t operation, size_t first) noexcept;

  std::array<Buffer, 4> buffers_;
  uint64_t calls_ = 0;
};

}  // namespace gradlane
