// decoded_blocks.cc - blocks of encoded contributions that were decoded for one run, for the next ones (lane's thread)
#include "collectives/exchange/decoded_blocks.h"

#include <algorithm>
#include <cstring>
#include <span>

namespace gradlane {

const float* DecodedBlocks::get(uint64_t operation, const EncodedContribution& coded, size_t first,
                                size_t count) noexcept {
  Buffer& it = buffer_for(operation, first);
  it.used = ++calls_;
  const bool continues = it.operation == operation;
  if (!continues || first + count > it.end) {
    const size_t begin = first - first % kEncodedBlock;
    const size_t last = first + count + kEncodedBlock - 1;
    const size_t end = std::min(last - last % kEncodedBlock, coded.floats);
    const size_t kept = continues && it.end > begin ? it.end - begin : 0;
    if (kept != 0) std::memmove(it.floats.get(), it.floats.get() + (begin - it.begin), kept * sizeof(float));
    const std::span rest(it.floats.get() + kept, end - begin - kept);
    it.operation = operation;
    it.begin = begin;
    it.end = end;
    if (!EncodedTensor(coded.bytes, coded.floats).decode(*coded.codec, begin + kept, rest)) {
      it.operation.reset();
      return nullptr;
    }
  }
  return it.floats.get() + (first - it.begin);
}

// Returns the buffer that has the float `first` or ends right before it; if there is none, the one that was unused for
// longest.
DecodedBlocks::Buffer& DecodedBlocks::buffer_for(uint64_t operation, size_t first) noexcept {
  for (Buffer& it : buffers_) {
    if (it.operation == operation && it.begin <= first && first <= it.end) return it;
  }
  Buffer& oldest = *std::ranges::min_element(buffers_, {}, &Buffer::used);
  oldest.operation.reset();
  return oldest;
}

}  // namespace gradlane
