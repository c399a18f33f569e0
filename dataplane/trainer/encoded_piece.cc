// encoded_piece.cc - encoding and decoding of contributions before their operations (worker thread only)
#include "dataplane/trainer/encoded_piece.h"

#include <algorithm>
#include <span>

#include "compress/encoded_tensor.h"

namespace gradlane {
namespace {

// Floats. They take 2 to 80 us with vectors, most if many are beyond the codec's range.
constexpr size_t kPiece = 4 * kEncodedBlock;

}  // namespace

bool code_piece(TrainerJob& it, unsigned rank) noexcept {
  const TrainerJob::Part& part = it.parts[0];
  const EncodedContribution& coded = part.encoded;
  const size_t element = it.share.first + it.done;
  const size_t first = coded.first + element;
  const size_t count = std::min(it.share.count - it.done, kPiece - first % kPiece);
  const std::span floats(static_cast<float*>(part.operation.data) + element, count);
  const bool good = coded.encodes ? encode_tensor(*coded.codec, floats, first, coded.floats, coded.bytes)
                                  : EncodedTensor(coded.bytes, coded.floats).decode(*coded.codec, first, floats);
  if (!good) {
    it.failure = {.cause = GRADLANE_CAUSE_OTHER, .text = {}};
    it.failure.text.add("the encoded contribution of rank ").add(rank).add(" is malformed");
    return true;
  }
  it.done += count;
  return it.done == it.share.count;
}

}  // namespace gradlane
