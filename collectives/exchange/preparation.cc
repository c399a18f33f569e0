// preparation.cc - the work before the first element: seeds, scans of the tensor, agreement with other ranks (lane's
// thread)
#include "collectives/exchange/preparation.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <span>

#include "collectives/descriptor.h"
#include "collectives/exchange/loss_sample.h"
#include "collectives/exchange/peers.h"
#include "collectives/exchange/poll_budget.h"
#include "collectives/exchange/tracer.h"

namespace gradlane {
namespace {

// The layout of the whole tensor in memory: the part of this exchange and the parts of others.
struct Whole {
  unsigned parts;
  size_t length;
  size_t pitch;
};
Whole whole_of(const Operation& op, unsigned world) noexcept {
  return {.parts = has_shares(op.kind) ? world : 1,
          .length = op.whole != 0 ? op.whole : op.count,
          .pitch = op.pitch != 0 ? op.pitch : op.count};
}

}  // namespace

void Preparation::begin(OperationState& it) noexcept {
  Operation& op = it.operation;
  const bool coded = encoded(op.type, op.reduction, op.codec->row().serves);
  if (coded) {
    const uint64_t seed = seed_of(membership_.generation(), it.number, op.tag);
    op.codec->seed(seed, own_seed_of(seed, parts_.config.rank));
    op.back_codec->seed(seed, own_seed_of(seed, parts_.config.rank));
    it.make_coders();
  }
  OperationState::Prepared& prepared = it.prepared;
  prepared.local_offer = std::nullopt;
  prepared.ready_notification.reset();
  prepared.ready = !coded || !reduces(op.kind) || op.codec->passes() == 0 || op.count == 0;
  prepared.stage_offset = prepared.ready ? 0 : 1;
  if (prepared.ready) {
    it.note_scanned();
  } else {
    *prepared.scan = TensorScan{};
  }
}

void Preparation::sample_loss_of(OperationState& it) noexcept {
  Loss& loss = it.outcome.loss;
  loss = sample_loss(it.operation, it.blocks, it.id);
  if (loss.values == 0) return;
  parts_.counters.add(Counter::kLossyOperations);
  parts_.counters.add(Counter::kLossyValues, loss.values);
  parts_.counters.add(Counter::kLossyZeroed, loss.zeroed);
  parts_.counters.add(Counter::kLossyNormPpm, static_cast<uint64_t>(loss.lost_share() * 1e6));
}

void Preparation::poll() noexcept {
  others_scan_ = false;
  size_t floats = kScanSlice;  // budget of a poll: 20 us where memory is slow
  for (const bool small : {true, false}) {
    table_.for_running([&](OperationState& it) {
      if (it.prepared.ready || small != (it.operation.count <= kScanSlice / 2)) return;
      scan_on(it, floats);
      go_on(it);
    });
  }
}

// Scans as many whole slices as `floats` allows. The scan covers this rank's whole contribution, including the parts
// that other exchanges have.
void Preparation::scan_on(OperationState& it, size_t& floats) noexcept {
  const Operation& op = it.operation;
  Codec& codec = *it.operation.codec;
  const Whole whole = whole_of(op, parts_.config.world);
  const size_t all = whole.parts * whole.length;
  TensorScan& scan = *it.prepared.scan;
  while (scan.pass < codec.passes()) {
    scan.values = std::clamp<uint64_t>(scan.next, scan.values, all);
    if (scan.values == all) {
      codec.end_pass(scan);
      continue;
    }
    const size_t first = scan.values % whole.length;
    const size_t count = std::min(kScanSlice - first % kScanSlice, whole.length - first);
    if (count > floats) break;
    const auto place = static_cast<ptrdiff_t>(scan.values / whole.length * whole.pitch + first);
    const ptrdiff_t at = place - static_cast<ptrdiff_t>(op.offset);
    const ElementContext from = it.context_at(at, true);
    codec.scan(scan, {.in = static_cast<const float*>(op.data) + at,
                      .residual = from.residual,
                      .second = from.second,
                      .floats = count,
                      .position = from.position});
    floats -= count;
  }
  if (scan.pass == codec.passes()) {
    it.note_scanned();
  } else {
    parts_.budget.ask_again();
  }
}

// If the scan is complete, sends this rank's offer, and makes the operation ready as soon as all other offers have
// arrived.
void Preparation::go_on(OperationState& it) noexcept {
  if (!it.prepared.counted) return;
  const Operation& op = it.operation;
  if (op.scans_left != nullptr && op.scans_left->load(std::memory_order_acquire) != 0) {
    others_scan_ = true;
    return;
  }
  if (op.codec->row().agreement == Agreement::kNone) {
    finish_scan(it, 0);
    return;
  }
  if (!it.prepared.local_offer) {
    const float offer = op.codec->offer(*it.prepared.scan);
    it.prepared.local_offer = std::isfinite(offer) && offer > 0 ? offer : 0.0F;
    it.prepared.ready_notification = it.notices.start;
    for (size_t link = 0; link < parts_.topology.links(); ++link) it.notices.start.set(link);
  }
  if (const auto all = agreed(it)) finish_scan(it, *all);
}

std::optional<float> Preparation::agreed(const OperationState& it) const noexcept {
  const size_t links = parts_.topology.links();
  if (parts_.peers.unheard(it) != links) return std::nullopt;
  std::array<float, kMaxWorld> offers;
  offers[parts_.config.rank] = *it.prepared.local_offer;
  for (size_t link = 0; link < links; ++link) {
    offers[parts_.topology.rank_at(link)] = *parts_.peers.start_of(link, it)->offer;
  }
  return agreed_on(it.operation.codec->row().agreement, std::span(offers).first(parts_.config.world));
}

void Preparation::finish_scan(OperationState& it, float agreed) noexcept {
  Operation& op = it.operation;
  const bool alike = op.codec->is(*op.back_codec);
  op.codec->finish_scan(*it.prepared.scan, agreed);
  if (alike) op.back_codec = op.codec;
  it.make_coders();
  it.prepared.ready = true;
  if (parts_.tracer.on()) parts_.tracer.started(it, membership_.session());
  it.notices.start |= it.prepared.ready_notification;
  sample_loss_of(it);
  it.algorithm->on_scan_agreed();
}

}  // namespace gradlane
