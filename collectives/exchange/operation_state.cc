// operation_state.cc - one operation on one rank (lane's thread)
#include "collectives/exchange/operation_state.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/stream_copy.h"
#include "collectives/exchange/poll_budget.h"

namespace gradlane {

ElementContext OperationState::context_at(ptrdiff_t element_of_tensor, bool contribution) const noexcept {
  const Operation& op = operation;
  ElementContext origin{.position = op.offset + static_cast<uint64_t>(element_of_tensor)};
  if (op.residual == nullptr) return origin;
  float* const second = op.codec->states() > 1 ? op.residual + op.state_pitch + element_of_tensor : nullptr;
  const bool adds = op.codec->row().is_additive;
  if (contribution) {
    origin.residual = op.residual + element_of_tensor;
    origin.second = adds ? second : nullptr;
  } else if (!adds) {
    origin.residual = second;
  }
  return origin;
}

size_t OperationState::copy_share(unsigned block, size_t first, PollBudget& budget) const noexcept {
  if (budget.spent()) return 0;
  const size_t count = std::min(blocks.count(block) - first, budget.elements());
  const size_t at = (blocks.offset(block) + first) * coder.element_bytes();
  std::memcpy(static_cast<uint8_t*>(operation.out) + at, static_cast<const uint8_t*>(operation.data) + at,
              count * coder.element_bytes());
  budget.spend(count);
  return count;
}

const uint8_t* OperationState::contribution(unsigned block, size_t element, size_t count,
                                            DecodedBlocks& decoded) noexcept {
  const EncodedContribution& coded = operation.encoded;
  if (coded.floats == 0) return elements(block, element);
  const size_t first = coded.first + base + blocks.offset(block) + element;
  const float* const floats = decoded.get(id, coded, first, count);
  if (floats == nullptr) {
    outcome.failure = {.code = FailureCode::kAborted, .rank = static_cast<uint16_t>(rank), .field = Field::kEncoded};
  }
  return reinterpret_cast<const uint8_t*>(floats);
}

size_t OperationState::tensor_bytes() const noexcept {
  const size_t elements = std::max(operation.count, operation.whole) * (has_shares(operation.kind) ? world : 1);
  return elements * coder.element_bytes();
}

void OperationState::store_final(std::span<const uint8_t> encoded, unsigned block, size_t element, size_t count,
                                 std::span<uint8_t> buffer) noexcept {
  if (gives_runs()) return append_run(encoded, block, element, count);
  uint8_t* const results = elements(block, element);
  uint8_t* const decoded = streams ? buffer.data() : results;
  (void)result_coder.decode(encoded, decoded, count);
  if (divides()) coder.divide(decoded, count, world);
  if (streams) stream_copy(results, decoded, count * coder.element_bytes());
}

void OperationState::append_run(std::span<const uint8_t> encoded, unsigned block, size_t element,
                                size_t count) noexcept {
  const RunArea& area = operation.runs;
  const size_t table = (outcome.runs + 1) * sizeof(ResultRun);
  // This cannot fail, because each group of floats comes once: RunArea::kGroupBytes.
  if (area.bytes - outcome.run_bytes < encoded.size() + table) {
    outcome.failure = {.code = FailureCode::kAborted, .rank = static_cast<uint16_t>(rank)};
    return;
  }
  std::memcpy(area.data + outcome.run_bytes, encoded.data(), encoded.size());
  const ResultRun run{.first = operation.offset + base + blocks.offset(block) + element,
                      .at = area.at + outcome.run_bytes,
                      .floats = static_cast<uint32_t>(count),
                      .bytes = static_cast<uint32_t>(encoded.size())};
  std::memcpy(area.data + area.bytes - table, &run, sizeof run);
  ++outcome.runs;
  outcome.run_bytes += encoded.size();
}

RunHeader OperationState::run_header(const Coder& by, Phase phase, unsigned block, size_t element) const noexcept {
  return {.operation = number,
          .digest = digest,
          .first = static_cast<uint32_t>(element / by.granule()),
          .count = 0,
          .bytes = 0,
          .block = static_cast<uint8_t>(block),
          .phase = phase,
          .codec = static_cast<uint8_t>(by.codec_id()),
          .param = by.codec_param()};
}

void OperationState::make_coders() noexcept {
  const Operation& op = operation;
  coder = Coder(op.type, *op.codec, op.reduction);
  result_coder = Coder(op.type, op.codec->is(*op.back_codec) ? op.codec->for_results() : *op.back_codec, op.reduction);
}

void OperationState::note_scanned() noexcept {
  if (!prepared.counted && operation.scans_left != nullptr)
    operation.scans_left->fetch_sub(1, std::memory_order_acq_rel);
  prepared.counted = true;
}

void OperationState::clear_residual() noexcept {
  const Operation& op = operation;
  const size_t pitch = op.pitch != 0 ? op.pitch : op.count;
  const unsigned parts = has_shares(op.kind) ? world : 1;
  for (unsigned state_array = 0; state_array < op.codec->states(); ++state_array) {
    float* const first = op.residual + state_array * op.state_pitch;
    for (unsigned part = 0; part < parts; ++part) std::fill_n(first + part * pitch, op.count, 0.0F);
  }
}

}  // namespace gradlane
