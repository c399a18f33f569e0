// trainer_ops_local.cc - trainers of one node: added up before the ring, results to all of them, in pieces between
// polls (worker thread only)
#include <algorithm>
#include <cstring>

#include "collectives/descriptor.h"
#include "dataplane/trainer/trainer_ops.h"

namespace gradlane {
namespace {

// Of all trainers' memory, in a poll: some 20 us. Other operations and acknowledgements wait so long.
constexpr size_t kPieceBytes = size_t{256} << 10;

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
  it.done = 0;
  const bool moves = shares_buffer() && it.share.count != 0;
  it.alone = moves && setup_.limits.ranks == 1 && exact(operation);
  const bool sums = moves && (it.alone || operation.kind == OpKind::kAllReduce);
  it.state = sums ? Job::State::kSumming : Job::State::kSummed;
}

// Nothing of it is rounded on its way.
bool TrainerOps::exact(const Operation& operation) const noexcept {
  const Codec& codec = operation.codec ? *operation.codec : setup_.limits.codec;
  return !encoded(operation.type, operation.reduction) || codec.row().exact();
}

uint8_t* TrainerOps::elements(Job& it, unsigned trainer, size_t element) noexcept {
  const Operation& operation = it.parts[trainer].operation;
  return static_cast<uint8_t*>(operation.data) + (it.share.first + element) * element_bytes(operation.type);
}

// Of all trainers, in the order 0, 1, ...; the sums stay in the L1 cache, so that memory is read once for each trainer
// and, by whoever takes them, written once.
const uint8_t* TrainerOps::sum_block(Job& it, const Coder& coder, size_t count) noexcept {
  const size_t bytes = count * coder.element_bytes();
  const uint8_t* sum = elements(it, 0, it.done);
  for (unsigned other = 1; other < setup_.trainers; ++other) {
    uint8_t* const out = scratch_[other % 2].bytes.data();
    (void)coder.hop({elements(it, other, it.done), bytes}, sum, count, {}, {out, bytes});  // lengths are right
    sum = out;
  }
  if (it.parts[0].operation.reduction == Reduction::kAverage) {
    coder.divide(scratch_[(setup_.trainers - 1) % 2].bytes.data(), count, setup_.trainers);
  }
  return sum;
}

bool TrainerOps::sum_piece(Job& it) noexcept {
  const Operation& operation = it.parts[it.buffer].operation;
  // Plain sums: what is rounded is the sum of the node, once.
  const Coder coder(operation.type, codec_of(FloatForm::kFp32, setup_.limits.codec.isa()), operation.reduction);
  const size_t width = coder.element_bytes();
  const size_t end = piece_end(it, width);
  while (it.done < end) {
    const size_t count = std::min(kBlockBytes / width, end - it.done);
    const uint8_t* const result =
        reduces(operation.kind) ? sum_block(it, coder, count) : elements(it, it.buffer, it.done);
    for (unsigned trainer = 0; trainer < setup_.trainers; ++trainer) {
      uint8_t* const to = elements(it, trainer, it.done);
      if (to != result && (it.alone || trainer == it.buffer)) std::memcpy(to, result, count * width);
    }
    it.done += count;
  }
  return it.done == it.share.count;
}

bool TrainerOps::copy_piece(Job& it) noexcept {
  const size_t width = element_bytes(it.parts[it.buffer].operation.type);
  const size_t end = piece_end(it, width);
  while (it.done < end) {
    const size_t count = std::min(kBlockBytes / width, end - it.done);
    const uint8_t* const result = elements(it, it.buffer, it.done);
    for (unsigned trainer = 0; trainer < setup_.trainers; ++trainer) {
      if (trainer != it.buffer) std::memcpy(elements(it, trainer, it.done), result, count * width);
    }
    it.done += count;
  }
  return it.done == it.share.count;
}

// As far as this poll goes, which is a block at least.
size_t TrainerOps::piece_end(const Job& it, size_t width) const noexcept {
  const size_t bytes = std::max(kPieceBytes / setup_.trainers, kBlockBytes);
  return std::min(it.done + bytes / width, it.share.count);
}

}  // namespace gradlane
