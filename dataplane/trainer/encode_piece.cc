// encode_piece.cc - encoding of contributions for later operations (worker thread only)
#include "dataplane/trainer/encode_piece.h"

#include <algorithm>
#include <span>

#include "compress/encoded_tensor.h"

namespace gradlane {
namespace {

// Floats. They take 2 to 80 us with vectors, most if many are beyond the codec's range.
constexpr size_t kPiece = 4 * kEncodedBlock;

}  // namespace

bool encode_piece(TrainerJob& it, unsigned rank) noexcept {
  const Operation& operation = it.parts[0].operation;
  const EncodedContribution& coded = operation.encoded;
  const size_t count = std::min(it.share.count - it.done, kPiece);
  const std::span<const float> floats(static_cast<const float*>(operation.data) + it.done, count);
  if (!encode_tensor(*coded.codec, floats, coded.first + it.done, coded.floats, coded.bytes)) {
    it.failure = {.cause = GRADLANE_CAUSE_OTHER, .text = {}};
    it.failure.text.add("the encoded contribution of rank ")
        .add(rank)
        .add(" is malformed, or not of this codec and count");
    return true;
  }
  it.done += count;
  return it.done == it.share.count;
}

}  // namespace gradlane
