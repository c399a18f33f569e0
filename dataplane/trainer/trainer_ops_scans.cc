// trainer_ops_scans.cc - lanes wait for one another when each of them scans a whole tensor (worker thread only)
#include "dataplane/trainer/trainer_ops.h"

namespace gradlane {

// Returns the entry in which this lane and the others wait for one another, or null if they need not. If trainers are
// added up, the entry belongs to the first trainer, because all lanes scan its tensor.
ScanBarrier::Entry* TrainerOps::looks_of(unsigned trainer, const Submission& submission) const noexcept {
  const Operation& operation = submission.operation;
  if (setup_.looks == nullptr || trainer != 0) return nullptr;
  const Codec& codec = operation.codec ? *operation.codec : setup_.limits.codec;
  const bool sums = reduces(operation.kind) && encoded(operation.type, operation.reduction, codec.row().serves);
  return sums && codec.passes() != 0 ? &setup_.looks->of(submission.slot) : nullptr;
}

// Leaves the entry before the trainer receives the completion. It reports everything that this lane has not reported
// yet, so that no lane waits for this one.
void TrainerOps::leave(ScanBarrier::Entry* looks, bool summed, bool given) noexcept {
  if (looks == nullptr) return;
  if (!summed) looks->to_sum.fetch_sub(1, std::memory_order_acq_rel);
  if (!given) looks->scans_left.fetch_sub(1, std::memory_order_acq_rel);
  setup_.looks->leave(*looks);
}

// Reports this lane's sum if a codec will scan the sums of all lanes. Returns whether all lanes have reported theirs,
// or need not.
bool TrainerOps::all_summed(Job& it) noexcept {
  if (it.looks == nullptr || !shares_buffer()) return true;
  if (!it.summed) it.looks->to_sum.fetch_sub(1, std::memory_order_acq_rel);
  it.summed = true;
  return !it.failure.empty() || it.looks->to_sum.load(std::memory_order_acquire) == 0;
}

}  // namespace gradlane
