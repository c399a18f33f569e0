// block_sender.cc - sending of own elements to the ranks that take them, in turn (packet path)
#include "collectives/exchange/block_sender.h"

#include "collectives/exchange/egress.h"
#include "collectives/exchange/operation_state.h"
#include "collectives/exchange/ordered_reducer.h"
#include "collectives/exchange/poll_budget.h"

namespace gradlane {

void BlockSender::begin(const OperationState& it) noexcept {
  window_ = OrderedReducer::window(it.world) / it.coder.element_bytes();
  left_ = 0;
  next_ = 1;
  std::ranges::fill(sent_, 0);
  std::ranges::fill(limit_, 0);
}

void BlockSender::send(OperationState& it, const EngineParts& parts, unsigned receivers, Nanos now) noexcept {
  if (left_ == 0) return;
  const bool one_block = it.blocks.blocks() == 1;
  for (bool again = true; again;) {
    again = false;
    for (unsigned i = 0; i < receivers; ++i) {
      const unsigned back = 1 + (next_ - 1 + i) % receivers;
      const unsigned block = one_block ? 0 : (2 * it.world + parts.config.rank - back - it.route.rotation) % it.world;
      const size_t sent = sent_[block] < limit_[block] ? send_piece(it, parts, block, now) : 0;
      sent_[block] += sent;
      left_ -= sent;
      again |= sent != 0;
      if (parts.budget.more()) {  // the budget of this poll is spent
        next_ = 1 + (next_ + i) % receivers;
        return;
      }
    }
  }
}

size_t BlockSender::send_piece(OperationState& it, const EngineParts& parts, unsigned block, Nanos now) noexcept {
  const Step step = it.strategy->start(it.route, block);
  const size_t first = sent_[block];
  if (!step.send) return it.copy_share(block, first, parts.budget);
  const size_t end = std::min({limit_[block], first + it.offer, first - first % window_ + window_});
  const Egress::Source source{.block = block,
                              .first = first,
                              .data = it.elements(block, first),
                              .count = end - first,
                              .contribution = it.adds_contributions(),
                              .begins_run = first % window_ == 0};
  const Egress::Piece piece = parts.egress.encode(it, step, source, now);
  if (piece.elements == 0) {
    parts.egress.note_unsent(step.link);
  } else {
    parts.egress.commit(it, step, piece);
  }
  return piece.elements;
}

std::optional<Step> BlockSender::next_step(const OperationState& it) const noexcept {
  if (left_ == 0) return std::nullopt;
  for (unsigned block = 0; block < it.blocks.blocks(); ++block) {
    const Step step = it.strategy->start(it.route, block);
    if (step.send && sent_[block] < limit_[block]) return step;
  }
  return std::nullopt;
}

}  // namespace gradlane
