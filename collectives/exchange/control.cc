// control.cc - control runs, which have no elements: start, abort and credit of an operation (packet path)
#include "collectives/exchange/control.h"

#include <algorithm>

#include "collectives/descriptor.h"
#include "collectives/exchange/egress.h"
#include "collectives/exchange/peers.h"

namespace gradlane {
namespace {

constexpr int32_t kFarBack = 1 << 30;  // number of operations; one that is further back cannot be under way any more

}  // namespace

// ---- Received

std::optional<Counter> Control::check(const Run& run, size_t link) noexcept {
  const RunHeader& header = run.header;
  switch (header.phase) {
    case Phase::kStart:
      if (!is_start(run.payload)) return Counter::kBadRun;
      if (header.first >= kMaxStages) return Counter::kBadRun;
      break;
    case Phase::kAbort:
      if (header.bytes != sizeof(AbortNotice)) return Counter::kBadRun;
      break;
    default:
      if (header.bytes != 0) return Counter::kBadRun;
  }
  // A rank sends aborts and credits only to ranks that it knows to have started the operation. A neighbour may have
  // started more operations than this rank, but no more than all ranks in between can have in flight.
  const int32_t ahead = table_.ahead(header.operation);
  const int32_t most = header.phase == Phase::kStart ? int32_t{kMaxOperations} * int32_t{kMaxWorld} : 0;
  if (ahead >= most || ahead <= -kFarBack) return Counter::kNotStarted;
  if (header.phase != Phase::kCredit) return std::nullopt;
  const OperationState* const it = table_.running(header.operation);
  const bool taken = it == nullptr || (it->prepared.ready && it->algorithm->accepts_credit(header.block, link));
  return taken ? std::nullopt : std::optional(Counter::kBadRoute);
}

void Control::on_run(const Run& run, size_t link) noexcept {
  if (run.header.phase == Phase::kStart) {
    take_start(run, link);
  } else if (run.header.phase == Phase::kAbort) {
    take_abort(run);
  } else if (OperationState* const it = table_.running(run.header.operation)) {
    it->algorithm->on_credit(run.header.block, run.header.first * it->coder.granule());
  }
}

void Control::take_abort(const Run& run) noexcept {
  OperationState* const it = table_.running(run.header.operation);
  if (it == nullptr) return;
  const auto notice = load<AbortNotice>(run.payload.data());
  const auto code = std::min(static_cast<FailureCode>(notice.code), FailureCode::kDuplicateRank);
  const auto field = static_cast<Field>(notice.field);
  const bool is_later = field == Field::kStrategy || field == Field::kBackCodec || field == Field::kChoice ||
                        field == Field::kTensor || field == Field::kEncoded;
  const Failure failure{.code = code == FailureCode::kNone ? FailureCode::kAborted : code,
                        .rank = notice.rank,
                        .field = is_later ? field : std::min(field, Field::kTag),
                        .ours = notice.ours,
                        .theirs = notice.theirs};
  lifecycle_.fail_everywhere(*it, failure, run.header.block);
}

void Control::take_start(const Run& run, size_t link) noexcept {
  const uint32_t number = run.header.operation;
  const Descriptor theirs = read_descriptor(run.payload);
  parts_.peers.note(link, {.number = number,
                           .valid = true,
                           .stage = static_cast<uint8_t>(run.header.first),
                           .offer = read_offer(run.payload),
                           .descriptor = theirs});
  if (!table_.has_started(number)) return;  // the operation is compared when it starts here
  if (OperationState* const it = table_.running(number)) lifecycle_.compare(*it, link, theirs);
}

// ---- Sent

void Control::send(Nanos now) noexcept {
  const size_t links = parts_.topology.links();
  for (OperationState& it : table_.all()) {
    if (it.notices.none()) continue;
    // While the codec scans the tensor, the operation accepts no elements, and this rank has nothing to report.
    if (it.state == OperationState::State::kRunning && !it.prepared.ready && !it.prepared.local_offer) continue;
    RunHeader header = it.run_header(it.coder, Phase::kStart, 0, 0);
    header.first = it.prepared.ready ? it.route.stage + it.prepared.stage_offset : 0;
    uint8_t start[kMostStart];
    const std::span bytes = std::span(start).first(write_start(it.descriptor, it.prepared.local_offer, start));
    LinkSet& told = it.notices.start;
    for (size_t link = told._Find_first(); link < links; link = told._Find_next(link)) {
      if (parts_.egress.outbox(link).control(header, bytes, now)) told.reset(link);
    }
    if (it.notices.failure.any()) send_aborts(it, now);
    OperationTable::release_if_read(it);
  }
}

// Sends aborts only to neighbours that have started the operation: others would not know it. The successor always
// reports its start. Any other neighbour that has not reported it by the deadline runs other operations, and gets no
// abort.
void Control::send_aborts(OperationState& it, Nanos now) noexcept {
  const RunHeader header = it.run_header(it.coder, Phase::kAbort, it.notices.origin, 0);
  const Failure& failure = it.outcome.failure;
  const AbortNotice notice{.ours = failure.ours,
                           .theirs = failure.theirs,
                           .rank = failure.rank,
                           .code = static_cast<uint8_t>(failure.code),
                           .field = static_cast<uint8_t>(failure.field),
                           .reserved = 0};
  uint8_t bytes[sizeof(AbortNotice)];
  store(bytes, notice);
  LinkSet& untold = it.notices.failure;
  for (size_t link = untold._Find_first(); link < parts_.topology.links(); link = untold._Find_next(link)) {
    const bool told = parts_.peers.started(link, it) && parts_.egress.outbox(link).control(header, bytes, now);
    if (told || (link != Topology::kSuccessor && now >= it.times.deadline)) untold.reset(link);
  }
}

}  // namespace gradlane
