// loss_sample.cc - estimate of what the codec takes from this rank's contribution to a sum, by a sample (lane's thread)
#include "collectives/exchange/loss_sample.h"

#include <algorithm>
#include <span>

#include "base/random.h"

namespace gradlane {
namespace {

// Returns whether the codec's error counts as a loss. Votes have neither a bound nor feedback, and do not carry
// magnitudes. The error of unbiased codecs is noise, which is not a loss.
bool approximates(const Codec& codec) noexcept {
  if (codec.row().exact() || codec.row().unbiased) return false;
  return codec.error().bounded || codec.has_feedback();
}

bool loses(const Operation& op) noexcept {
  return reduces(op.kind) && encoded(op.type, op.reduction, op.codec->row().serves) && op.residual == nullptr &&
         op.encoded.floats == 0 && approximates(*op.codec);
}

// Measures `count` neighbouring elements from the tensor's element `first` on, as far as they lie in one block. Returns
// how many did.
size_t measure_run(const Operation& op, const Blocks& blocks, size_t first, size_t count, Loss& loss) noexcept {
  const Blocks::Place place = blocks.place(first);
  const size_t here = std::min(count, place.left);
  loss.add(measure_loss(*op.codec, {static_cast<const float*>(op.data) + place.offset, here}));
  return here;
}

}  // namespace

Loss sample_loss(const Operation& op, const Blocks& blocks, uint64_t seed) noexcept {
  Loss loss;
  if (!loses(op)) return loss;
  const size_t elements = blocks.elements();
  if (elements <= kLossRuns * kLossRun) {
    for (size_t done = 0; done < elements;) done += measure_run(op, blocks, done, elements - done, loss);
    return loss;
  }
  // Measures one run in each of kLossRuns parts of equal size.
  const size_t part = elements / kLossRuns;
  for (size_t run = 0; run < kLossRuns; ++run) {
    const size_t slack = part - kLossRun + 1;
    const size_t first = run * part + Random(seed * kLossRuns + run).next() % slack;
    (void)measure_run(op, blocks, first, kLossRun, loss);
  }
  return loss;
}

}  // namespace gradlane
