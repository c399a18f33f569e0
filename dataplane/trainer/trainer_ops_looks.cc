// trainer_ops_looks.cc - lanes that wait for one another, where each of them looks at all of a tensor (worker thread
// only)
#include "dataplane/trainer/trainer_ops.h"

namespace gradlane {

// Where this lane and the others wait for one another, or null: they need not. Of trainers that are added up it is the
// first one's, whose tensor all of them look at.
LaneLooks::Entry* TrainerOps::looks_of(unsigned trainer, const Submission& submission) const noexcept {
  const Operation& operation = submission.operation;
  if (setup_.looks == nullptr || trainer != 0) return nullptr;
  const bool sums = reduces(operation.kind) && encoded(operation.type, operation.reduction);
  const Codec& codec = operation.codec ? *operation.codec : setup_.limits.codec;
  return sums && codec.passes() != 0 ? &setup_.looks->of(submission.slot) : nullptr;
}

// Before its trainer is told: what this lane has not said there, nobody shall wait for.
void TrainerOps::leave(LaneLooks::Entry* looks, bool summed, bool given) noexcept {
  if (looks == nullptr) return;
  if (!summed) looks->to_sum.fetch_sub(1, std::memory_order_acq_rel);
  if (!given) looks->to_look.fetch_sub(1, std::memory_order_acq_rel);
  setup_.looks->leave(*looks);
}

// On all lanes, if a codec will look at what others have added up.
bool TrainerOps::all_summed(Job& it) noexcept {
  if (it.looks == nullptr || !shares_buffer()) return true;
  if (!it.summed) it.looks->to_sum.fetch_sub(1, std::memory_order_acq_rel);
  it.summed = true;
  return !it.failure.empty() || it.looks->to_sum.load(std::memory_order_acquire) == 0;
}

}  // namespace gradlane
