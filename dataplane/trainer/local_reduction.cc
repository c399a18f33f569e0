// local_reduction.cc - the local reduction: adds up a node's trainers before the ring and copies results to all of
// them, in pieces between polls (worker thread only)
#include "dataplane/trainer/local_reduction.h"

#include <algorithm>
#include <cstring>

#include "base/fixed_text.h"
#include "collectives/descriptor.h"
#include "collectives/mismatch.h"

namespace gradlane {
namespace {

// Bytes of all trainers' memory that one poll handles. They take about 20 us. Other operations and acknowledgements
// wait for that long.
constexpr size_t kPieceBytes = size_t{256} << 10;

}  // namespace

LocalReduction::LocalReduction(const TrainerOpsSetup& setup) : setup_(setup) {
  if (shares_buffer()) scratch_.resize(kPieceBytes / sizeof(Line));
}

// Compares the operation with that of the lowest-numbered trainer that submitted it before.
void LocalReduction::compare(TrainerJob& it, unsigned trainer) const noexcept {
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
  const auto named = [this](unsigned local) { return FixedText<32>("by rank ").add(setup_.first_rank + local); };
  FailureText text = "trainers of one node run different operations";
  add_difference(text, difference, named(first).view(), named(trainer).view());
  it.failure = {.cause = difference.field == Field::kTag ? GRADLANE_CAUSE_TAG : GRADLANE_CAUSE_MISMATCH,
                .text = text.view()};
}

Share LocalReduction::share(const Operation& operation) const noexcept {
  if (operation.kind == OpKind::kBarrier) return {};
  return share_of(length_of(operation), element_bytes(operation.type), setup_.lane, setup_.lanes);
}

size_t LocalReduction::length_of(const Operation& operation) const noexcept {
  return has_shares(operation.kind) ? operation.count * setup_.trainers : operation.count;
}

void LocalReduction::begin(TrainerJob& it) const noexcept {
  const Operation& operation = std::ranges::find_if(it.parts, &TrainerJob::Part::submitted)->operation;
  it.share = share(operation);
  it.buffer = 0;
  const bool root_here = shares_buffer() && operation.root / setup_.trainers == setup_.node;
  if (operation.kind == OpKind::kBroadcast && root_here) it.buffer = operation.root % setup_.trainers;
  it.done = 0;
  const bool moves = shares_buffer() && it.share.count != 0;
  it.alone = moves && setup_.limits.ranks == 1 && exact(operation);
  const bool sums = moves && (it.alone || operation.kind != OpKind::kBroadcast);
  it.state = sums ? TrainerJob::State::kSumming : TrainerJob::State::kSummed;
}

// Returns whether nothing of the operation is rounded on its way.
bool LocalReduction::exact(const Operation& operation) const noexcept {
  const Codec& codec = operation.codec ? *operation.codec : setup_.limits.codec;
  return !encoded(operation.type, operation.reduction, codec.row().serves) || codec.row().exact();
}

uint8_t* LocalReduction::elements(TrainerJob& it, unsigned trainer, size_t element) noexcept {
  const Operation& operation = it.parts[trainer].operation;
  return static_cast<uint8_t*>(operation.data) + element * element_bytes(operation.type);
}

// Returns the next run of the share, at most `most` elements. Where each rank has a block, the run lies within one
// trainer's block. `all`: the run goes through the blocks of all nodes, else only through those of this node.
LocalReduction::Span LocalReduction::span(const TrainerJob& it, bool all, size_t most) const noexcept {
  const Operation& operation = it.parts[it.buffer].operation;
  const size_t at = it.share.first + it.done % it.share.count;
  size_t left = it.share.count - it.done % it.share.count;
  if (!has_shares(operation.kind)) return {.element = at, .count = std::min(most, left), .owner = 0};
  const size_t row = all ? it.done / it.share.count : setup_.node;
  const size_t owner = at / operation.count;
  left = std::min(left, (owner + 1) * operation.count - at);
  return {.element = row * operation.count * setup_.trainers + at,
          .count = std::min(most, left),
          .owner = static_cast<unsigned>(owner)};
}

// Adds up a run of all trainers, in the order 0, 1, .... A poll's piece stays in the L2 cache, so that memory is read
// once for each trainer. The caller that takes the sums writes them once.
const uint8_t* LocalReduction::sum_block(TrainerJob& it, const Coder& coder, const Span& span) noexcept {
  const size_t bytes = span.count * coder.element_bytes();
  const uint8_t* sum = elements(it, 0, span.element);
  for (unsigned other = 1; other < setup_.trainers; ++other) {
    uint8_t* const out = scratch_[other % 2 * (scratch_.size() / 2)].bytes.data();
    (void)coder.hop({elements(it, other, span.element), bytes}, sum, span.count, {},
                    {out, bytes});  // lengths are right
    sum = out;
  }
  if (it.parts[0].operation.reduction == Reduction::kAverage) {
    coder.divide(scratch_[(setup_.trainers - 1) % 2 * (scratch_.size() / 2)].bytes.data(), span.count, setup_.trainers);
  }
  return sum;
}

void LocalReduction::put(TrainerJob& it, const uint8_t* from, const Span& span, unsigned to) noexcept {
  uint8_t* const place = elements(it, to, span.element);
  if (place != from) std::memcpy(place, from, span.count * element_bytes(it.parts[to].operation.type));
}

// Copies a run of the result to its owner if each rank gets a block of its own, else to all trainers.
void LocalReduction::hand_out(TrainerJob& it, const uint8_t* from, const Span& span) const noexcept {
  if (it.parts[it.buffer].operation.kind == OpKind::kReduceScatter) return put(it, from, span, span.owner);
  for (unsigned trainer = 0; trainer < setup_.trainers; ++trainer) put(it, from, span, trainer);
}

bool LocalReduction::sum_piece(TrainerJob& it) noexcept {
  const Operation& operation = it.parts[it.buffer].operation;
  // No codec is used here: the sum of the node is rounded later, once.
  const Coder coder(operation.type, codec_of(FloatForm::kFp32, setup_.limits.codec.isa()), operation.reduction);
  const bool all = operation.kind == OpKind::kReduceScatter;
  const size_t count = it.share.count * (all ? setup_.limits.ranks : 1);
  for (size_t left = piece(it); left != 0 && it.done != count;) {
    const Span next = span(it, all, left);
    left -= next.count;
    const unsigned one = operation.kind == OpKind::kAllGather ? next.owner : it.buffer;
    const uint8_t* const from = reduces(operation.kind) ? sum_block(it, coder, next) : elements(it, one, next.element);
    if (it.alone) {
      hand_out(it, from, next);
    } else {
      put(it, from, next, it.buffer);
    }
    it.done += next.count;
  }
  return it.done == count;
}

bool LocalReduction::copy_piece(TrainerJob& it) const noexcept {
  const Operation& operation = it.parts[it.buffer].operation;
  const bool all = operation.kind == OpKind::kAllGather;
  const size_t count = it.share.count * (all ? setup_.limits.ranks : 1);
  for (size_t left = piece(it); left != 0 && it.done != count;) {
    const Span next = span(it, all, left);
    left -= next.count;
    hand_out(it, elements(it, it.buffer, next.element), next);
    it.done += next.count;
  }
  return it.done == count;
}

// Returns how many elements of each trainer one poll handles. It is as many as kPieceBytes allows, because the
// processor prefetches long runs. Their bytes are whole pages.
size_t LocalReduction::piece(const TrainerJob& it) const noexcept {
  constexpr size_t kPage = 4096;
  const size_t bytes = kPieceBytes / setup_.trainers / kPage * kPage;
  return std::min(bytes / element_bytes(it.parts[it.buffer].operation.type), kMaxRunElements);
}

}  // namespace gradlane
