// lone_algorithm.cc - operations in a world of one: the result is the contribution, rounded as with more ranks (lane's
// thread)
#include "collectives/exchange/lone_algorithm.h"

#include <algorithm>

#include "collectives/exchange/operation_state.h"
#include "collectives/exchange/poll_budget.h"

namespace gradlane {
namespace {

constexpr size_t kRoundsPerPoll = 64;  // limit that keeps a poll short

}  // namespace

void LoneAlgorithm::begin() noexcept {
  block_ = 0;
  done_ = 0;
}

bool LoneAlgorithm::done() const noexcept { return block_ == it_.blocks.blocks(); }

bool LoneAlgorithm::send_own(Nanos) noexcept {
  size_t rounds = 0;
  for (; block_ != it_.blocks.blocks(); ++block_, done_ = 0) {
    const size_t count = it_.strategy->start(it_.route, block_).expected ? it_.blocks.count(block_) : 0;
    while (done_ < count) {
      if (it_.route.kind == OpKind::kAllToAll) {
        const size_t copied = it_.copy_share(block_, done_, parts_.budget);
        if (copied == 0) return true;
        done_ += copied;
        continue;
      }
      if (rounds++ == kRoundsPerPoll) {
        parts_.budget.ask_again();
        return true;
      }
      if (!round(std::min(count - done_, std::max(it_.coder.granule() * 16, it_.coder.cut())))) return false;
    }
  }
  return false;
}

// Makes results of the next `count` elements, or of the first of them. Returns false if the operation fails.
bool LoneAlgorithm::round(size_t count) noexcept {
  uint8_t* const data = it_.elements(block_, done_);
  const ElementContext from = it_.context_of(block_, done_, it_.adds_contributions());
  EncodeResult encoded{};
  if (it_.adds_contributions()) {
    const uint8_t* const own = it_.contribution(block_, done_, count, parts_.decoded);
    if (own == nullptr) return false;
    encoded = it_.coder.encode(own, count, from, parts_.scratch);
  } else {
    encoded = it_.coder.encode_sum(data, count, from, parts_.scratch);
  }
  if (it_.gives_runs()) {
    it_.append_run(parts_.scratch.first(encoded.bytes), block_, done_, encoded.floats);
    done_ += encoded.floats;
    return true;
  }
  (void)it_.coder.decode(parts_.scratch.first(encoded.bytes), data, encoded.floats);
  if (it_.adds_contributions() && (it_.coder.selects() || !it_.operation.codec->row().is_additive))
    finish(data, encoded.floats);
  it_.complete(block_, done_, encoded.floats);
  done_ += encoded.floats;
  return true;
}

// Makes a result of a sum, as an owner or the last rank to add does.
void LoneAlgorithm::finish(uint8_t* sums, size_t count) noexcept {
  const ElementContext from = it_.context_of(block_, done_, false);
  it_.coder.finish(sums, count, from.position);
  const EncodeResult encoded = it_.result_coder.encode_sum(sums, count, from, parts_.scratch);
  (void)it_.result_coder.decode(parts_.scratch.first(encoded.bytes), sums, encoded.floats);
}

}  // namespace gradlane
