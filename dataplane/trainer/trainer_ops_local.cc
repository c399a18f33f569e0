// trainer_ops_local.cc - trainers of one node are summed up before the ring, in pieces between polls (worker thread
// only)
#include <algorithm>
#include <cstring>

#include "collectives/descriptor.h"
#include "dataplane/trainer/trainer_ops.h"

namespace gradlane {
namespace {

constexpr size_t kCopyBytes = size_t{256} << 10;

}  // namespace

// With the first one that submitted it.
void TrainerOps::compare(Job& it, unsigned trainer) noexcept {
  if (!it.failure.empty()) return;
  const auto earlier = [&](unsigned other) { return other != trainer && it.parts[other].submitted; };
  unsigned first = 0;
  while (!earlier(first)) ++first;
  const auto description = [&](unsigned local) {
    const Operation& operation = it.parts[local].operation;
    return describe(operation, operation.codec ? *operation.codec : setup_.limits.codec);
  };
  const Failure difference = mismatch(description(first), description(trainer), 0);
  if (!difference) return;
  const auto named = [this](unsigned local) {
    return FixedText<32>("by rank ").add(setup_.node * setup_.trainers + local);
  };
  FailureText text = "trainers of one node run different operations";
  add_difference(text, difference, named(first).view(), named(trainer).view());
  it.failure = text.view();
}

// Finds this lane's share, and whose tensor the exchange shall work on.
void TrainerOps::begin_sum(Job& it) noexcept {
  const Operation& operation = std::ranges::find_if(it.parts, &Part::submitted)->operation;
  it.share = share(operation);
  it.buffer = 0;
  const bool root_here = shares_buffer() && operation.root / setup_.trainers == setup_.node;
  if (operation.kind == OpKind::kBroadcast && root_here) it.buffer = operation.root % setup_.trainers;
  it.other = 1;
  it.done = 0;
  const bool sums = shares_buffer() && operation.kind == OpKind::kAllReduce && it.share.count != 0;
  it.state = sums ? Job::State::kSumming : Job::State::kSummed;
}

uint8_t* TrainerOps::elements(Job& it, unsigned trainer, size_t element) noexcept {
  const Operation& operation = it.parts[trainer].operation;
  return static_cast<uint8_t*>(operation.data) + (it.share.first + element) * element_bytes(operation.type);
}

bool TrainerOps::sum_piece(Job& it) noexcept {
  const Operation& operation = it.parts[0].operation;
  const size_t width = element_bytes(operation.type);
  // Plain sums: what is rounded is the sum of the node, once.
  const Coder coder(operation.type, codec_of(FloatForm::kFp32, setup_.limits.codec.isa()), operation.reduction);
  const size_t count = std::min(scratch_.size() / width, it.share.count - it.done);
  uint8_t* const sum = elements(it, 0, it.done);
  const auto result = coder.hop({elements(it, it.other, it.done), count * width}, sum, count, {}, scratch_);
  std::memcpy(sum, scratch_.data(), result.floats * width);
  const bool last = it.other + 1 == setup_.trainers;
  if (last && operation.reduction == Reduction::kAverage) coder.divide(sum, result.floats, setup_.trainers);
  it.done += result.floats;
  if (it.done < it.share.count) return false;
  it.done = 0;
  ++it.other;
  return last;
}

bool TrainerOps::copy_piece(Job& it) noexcept {
  if (it.other == it.buffer) ++it.other;
  if (it.other >= setup_.trainers) return true;
  const size_t width = element_bytes(it.parts[it.buffer].operation.type);
  const size_t count = std::min(kCopyBytes / width, it.share.count - it.done);
  std::memcpy(elements(it, it.other, it.done), elements(it, it.buffer, it.done), count * width);
  it.done += count;
  if (it.done < it.share.count) return false;
  it.done = 0;
  ++it.other;
  return it.other >= setup_.trainers || (it.other == it.buffer && it.other + 1 == setup_.trainers);
}

}  // namespace gradlane
