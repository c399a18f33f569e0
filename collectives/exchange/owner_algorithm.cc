// owner_algorithm.cc - blocks with owners: contributions to them, sums in turns, results to all (packet path)
#include "collectives/exchange/owner_algorithm.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "collectives/exchange/egress.h"
#include "collectives/exchange/peers.h"

namespace gradlane {

OwnerAlgorithm::OwnerAlgorithm(OperationState& it, const EngineParts& parts)
    : Algorithm(it, parts), sender_(parts.owners) {}

void OwnerAlgorithm::begin() noexcept {
  sender_.begin(it_);
  const unsigned rank = parts_.config.rank;
  const unsigned blocks = it_.blocks.blocks();
  const bool sums = adds(it_.route.kind);
  own_ = blocks;
  queued_ = 0;
  results_left_ = 0;
  for (unsigned block = 0; block < blocks; ++block) {
    const unsigned owner = it_.strategy->owner(it_.route, block);
    const size_t count = it_.blocks.count(block);
    if (owner == rank) {
      if (count != 0) own_ = block;
      continue;
    }
    if (sums) sender_.add(block, count, std::min(sender_.window(), count));
    if (reaches_all(it_.route.kind)) results_left_ += count;
  }
  if (owns()) parts_.egress.expect_results(1);
  if (owns() || !sums) it_.notices.start |= it_.strategy->sources(it_.route);
  if (owns() && sums && it_.prepared.ready) begin_turns();
}

void OwnerAlgorithm::on_scan_agreed() noexcept {
  if (owns()) begin_turns();
}

void OwnerAlgorithm::end() noexcept {
  if (!all_queued()) parts_.egress.expect_results(-1);
}

bool OwnerAlgorithm::done() const noexcept { return all_queued() && results_left_ == 0 && sender_.all_sent(); }

unsigned OwnerAlgorithm::turn_of(unsigned rank) const noexcept {
  const unsigned world = parts_.config.world;
  return (rank + world - it_.strategy->first_of(it_.route, own_)) % world;
}

// ---- Arrivals

bool OwnerAlgorithm::accepts(const Run& run, size_t link, std::span<const Run> before) const noexcept {
  return run.step.in_turn ? has_room(run, link, before) : fits(run, before, results_left_);
}

// Returns whether there is space for a contribution to the block of this rank, and no earlier run of the packet
// overlaps it.
bool OwnerAlgorithm::has_room(const Run& run, size_t link, std::span<const Run> before) const noexcept {
  const size_t first = run.header.first * it_.coder.granule();
  const size_t end = first + run.header.count;
  if (!it_.memory->turns.has_place(turn_of(parts_.topology.rank_at(link)), first, run.header.count)) return false;
  return std::ranges::none_of(before, [&](const Run& other) {
    if (other.operation != &it_ || !other.step.in_turn) return false;
    const size_t begin = other.header.first * it_.coder.granule();
    return begin < end && first < begin + other.header.count;
  });
}

void OwnerAlgorithm::on_run(const Run& run, size_t link, bool, Nanos) noexcept {
  if (run.step.in_turn) {
    take_contribution(run, link);
    return;
  }
  const size_t begin = run.header.first * it_.coder.granule();
  results_left_ -= run.header.count;
  parts_.counters.add(Counter::kRunsStored);
  it_.store_final(run.payload, run.header.block, begin, run.header.count, parts_.private_copy);
}

bool OwnerAlgorithm::accepts_credit(unsigned block, size_t link) const noexcept {
  return block < it_.blocks.blocks() && it_.strategy->owner(it_.route, block) == parts_.topology.rank_at(link);
}

void OwnerAlgorithm::on_credit(unsigned block, size_t elements) noexcept {
  const size_t count = it_.blocks.count(block);
  sender_.raise(block, elements >= count ? count : elements - elements % it_.coder.cut());
}

// ---- Contributions

bool OwnerAlgorithm::send_own(Nanos now) noexcept {
  queue_results(now);
  const unsigned receivers = it_.blocks.blocks() == 1 ? 1 : parts_.config.world - 1;
  sender_.send(it_, parts_, receivers, now);
  return false;
}

// ---- The owner's work

void OwnerAlgorithm::begin_turns() noexcept {
  const Operation& op = it_.operation;
  const Coder plain(op.type, find_codec(kNoCodec, 0, op.codec->isa()).value_or(*op.codec), op.reduction);
  it_.memory->turns.begin(it_.blocks.count(own_), turn_of(parts_.config.rank), it_.coder, plain);
  it_.memory->turns.start(
      [&](size_t first, size_t count, uint8_t* sums, bool begins) { add_own(first, count, sums, begins); },
      [](size_t, size_t, const uint8_t*) {});  // no sum is complete before the others contribute
}

void OwnerAlgorithm::take_contribution(const Run& run, size_t link) noexcept {
  parts_.counters.add(Counter::kRunsMerged);
  it_.memory->turns.take(
      turn_of(parts_.topology.rank_at(link)), run.header.first * it_.coder.granule(), run.header.count, run.payload,
      [&](size_t first, size_t count, uint8_t* sums, bool begins) { add_own(first, count, sums, begins); },
      [&](size_t first, size_t count, const uint8_t* sums) {
        uint8_t* const to = it_.elements(own_, first);
        std::memcpy(to, sums, count * it_.coder.element_bytes());
        if (it_.sums_end()) it_.coder.finish(to, count, it_.context_of(own_, first, false).position);
      },
      [&](size_t first, size_t count) { sum_exactly(first, count); });
}

// Makes results of the elements of all ranks. Averages are complete then: it_.complete() does not divide them.
void OwnerAlgorithm::sum_exactly(size_t first, size_t count) noexcept {
  const unsigned world = parts_.config.world;
  const unsigned divisor = it_.operation.reduction == Reduction::kAverage ? world : 1;
  for (const size_t end = first + count; first != end;) {
    const size_t piece = std::min(end - first, kMaxRunElements);
    const uint8_t* const own = it_.contribution(own_, first, piece, parts_.decoded);
    if (own == nullptr) return;
    std::array<const void*, kMaxWorld> in;
    for (unsigned turn = 0; turn < world; ++turn) in[turn] = it_.memory->turns.kept(turn, first);
    in[turn_of(parts_.config.rank)] = own;
    it_.coder.sum_exactly(in.data(), world, divisor, it_.elements(own_, first), piece);
    first += piece;
  }
}

// Adds this rank's own elements, rounded like all contributions.
void OwnerAlgorithm::add_own(size_t first, size_t count, uint8_t* sums, bool begins) noexcept {
  for (size_t done = 0; done < count;) {
    const size_t piece = std::min(count - done, kMaxRunElements);
    const uint8_t* const own = it_.contribution(own_, first + done, piece, parts_.decoded);
    if (own == nullptr) return;
    const ElementContext from = it_.context_of(own_, first + done, it_.adds_contributions());
    const EncodeResult encoded = it_.coder.encode(own, piece, from, parts_.scratch);
    const std::span block = parts_.scratch.first(encoded.bytes);
    uint8_t* const out = sums + done * it_.coder.element_bytes();
    (void)(begins ? it_.coder.decode(block, out, encoded.floats) : it_.coder.add(block, out, encoded.floats));
    done += encoded.floats;
  }
}

void OwnerAlgorithm::send_credits(Nanos now) noexcept {
  OrderedReducer& turns = it_.memory->turns;
  if (!owns() || !adds(it_.route.kind) || !turns.moved()) return;
  const unsigned world = parts_.config.world;
  for (unsigned turn = 0; turn < world; ++turn) {
    const size_t limit = turns.credit(turn);
    if (limit == 0) continue;
    const unsigned rank = (it_.strategy->first_of(it_.route, own_) + turn) % world;
    const RunHeader header = it_.run_header(it_.coder, Phase::kCredit, own_, limit + it_.coder.granule() - 1);
    if (parts_.egress.outbox(parts_.topology.link_to(rank).value_or(0)).control(header, {}, now)) {
      turns.told(turn, limit);
    } else {
      turns.again();
    }
  }
}

// Puts the available results of this rank's block into packets for all other ranks.
void OwnerAlgorithm::queue_results(Nanos now) noexcept {
  if (all_queued()) return;
  const OrderedReducer& turns = it_.memory->turns;
  const size_t count = it_.blocks.count(own_);
  size_t ready = count;
  if (adds(it_.route.kind)) {
    ready = it_.strategy->streams() || turns.complete() ? turns.done() : 0;
  } else {
    for (size_t link = 0; link < parts_.topology.links(); ++link) {
      if (!parts_.peers.started(link, it_)) return;
    }
  }
  if (ready != count) ready -= ready % it_.result_coder.cut();
  while (queued_ < ready && queue_result(ready - queued_, now)) {
  }
  if (all_queued()) parts_.egress.expect_results(-1);
}

bool OwnerAlgorithm::queue_result(size_t count, Nanos now) noexcept {
  if (parts_.budget.spent()) return false;
  uint8_t* const data = it_.elements(own_, queued_);
  const ElementContext from = it_.context_of(own_, queued_, false);
  EncodeResult encoded;
  const Nanos began = parts_.tracer.begins();
  if (!reaches_all(it_.route.kind)) {  // the result stays on this rank
    encoded = it_.result_coder.encode_sum(data, count, from, parts_.scratch);
    (void)it_.result_coder.decode(parts_.scratch.first(encoded.bytes), data, encoded.floats);
  } else {
    const RunHeader header = it_.run_header(it_.result_coder, Phase::kGather, own_, queued_);
    parts_.egress.fanout().prepare();
    Outbox& outbox = parts_.egress.fanout().outbox();
    Outbox::Place place;
    do {
      place = outbox.reserve(Outbox::kResults, header, it_.result_coder, it_.result_coder.cut(), 0, now);
      if (place.bytes.empty()) return false;
      encoded = it_.result_coder.encode_sum(data, std::min(count, place.elements), from, place.bytes);
    } while (encoded.floats == 0 && outbox.begin_next(Outbox::kResults, now));
    if (encoded.floats == 0) return false;
    if (it_.gives_runs()) {
      it_.append_run(place.bytes.first(encoded.bytes), own_, queued_, encoded.floats);
    } else {
      (void)it_.result_coder.decode(place.bytes.first(encoded.bytes), data, encoded.floats);
    }
    const size_t links = parts_.topology.links();
    const size_t bytes =
        outbox.commit(Outbox::kResults, place, header, it_.result_coder, encoded.floats, encoded.bytes);
    parts_.egress.count_sent(it_, Phase::kGather, own_, links, bytes * links, encoded.floats * links);
  }
  parts_.tracer.time(it_, &TraceOperation::encode, began);
  it_.complete(own_, queued_, encoded.floats);
  queued_ += encoded.floats;
  parts_.budget.spend(encoded.floats);
  return true;
}

// Returns an owner that has not started the operation. If all have, returns the rank that has sent least to this owner,
// or any owner.
unsigned OwnerAlgorithm::awaited() const noexcept {
  unsigned owner = parts_.topology.rank_at(0);
  for (unsigned block = 0; block < it_.blocks.blocks(); ++block) {
    const unsigned of = it_.strategy->owner(it_.route, block);
    const auto link = parts_.topology.link_to(of);
    if (!link || it_.blocks.count(block) == 0) continue;
    owner = of;
    if (!parts_.peers.started(*link, it_)) return of;
  }
  const OrderedReducer& turns = it_.memory->turns;
  const bool waits = owns() && adds(it_.route.kind) && !turns.complete();
  return waits ? (it_.strategy->first_of(it_.route, own_) + turns.last()) % parts_.config.world : owner;
}

}  // namespace gradlane
