// ring_algorithm.cc - blocks that travel around a ring: each rank adds to sums, and passes results on (packet path)
#include "collectives/exchange/ring_algorithm.h"

#include <algorithm>
#include <cstring>

#include "collectives/crc32c.h"
#include "collectives/exchange/operation_state.h"
#include "collectives/exchange/peers.h"

namespace gradlane {

void RingAlgorithm::begin() noexcept {
  it_.memory->partial.begin(it_.blocks.blocks(), it_.blocks.max_block_granules());
  it_.memory->result.begin(it_.blocks.blocks(), it_.blocks.max_block_granules());
  sums_left_ = results_left_ = 0;
  coming_ = {};
  own_block_ = 0;
  own_sent_ = 0;
  others_sent_ = 0;
  const LinkSet sources = it_.strategy->sources(it_.route);
  it_.notices.start |= sources;
  from_ = sources._Find_first();
  for (unsigned block = 0; block < it_.blocks.blocks(); ++block) {
    const size_t count = it_.blocks.count(block);
    const Step sum = it_.strategy->arrival(it_.route, Phase::kReduce, block, from_);
    if (sum.expected) sums_left_ += count;
    if (sum.expected && sum.send) coming_[Egress::channel_of(sum)] += count;
    const Step result = it_.strategy->arrival(it_.route, Phase::kGather, block, from_);
    if (result.expected) results_left_ += count;
  }
  parts_.egress.expect(coming_);
}

void RingAlgorithm::end() noexcept { parts_.egress.forget(coming_); }

bool RingAlgorithm::all_sent() const noexcept { return own_block_ == it_.blocks.blocks(); }

bool RingAlgorithm::done() const noexcept {
  return sums_left_ == 0 && results_left_ == 0 && all_sent() && it_.memory->partial.empty() &&
         it_.memory->result.empty();
}

PendingBitmap& RingAlgorithm::pending(Phase phase) const noexcept {
  return phase == Phase::kReduce ? it_.memory->partial : it_.memory->result;
}

// ---- Arrivals

bool RingAlgorithm::accepts(const Run& run, size_t, std::span<const Run> before) const noexcept {
  return fits(run, before, run.header.phase == Phase::kReduce ? sums_left_ : results_left_);
}

void RingAlgorithm::on_run(const Run& run, size_t, bool relayed, Nanos now) noexcept {
  if (!run.step.merge) {
    results_left_ -= run.header.count;
    take_result(run, relayed, now);
    return;
  }
  sums_left_ -= run.header.count;
  if (run.step.send) {
    const Outbox::Channel channel = Egress::channel_of(run.step);
    coming_[channel] -= run.header.count;
    parts_.egress.arrived(channel, run.header.count);
  }
  take_sum(run, now);
}

// Takes a partial sum: adds the local elements, in one pass into the next packet if there is one to write to.
void RingAlgorithm::take_sum(const Run& run, Nanos now) noexcept {
  others_sent_ += (run.header.first * it_.coder.granule() + run.header.count) / 16;
  others_sent_ -= others_sent_ / 16;
  // In later stages the tensor has a sum, which is not a contribution. A codec that selects must not select from it.
  if (!it_.adds_contributions() && it_.coder.selects()) {
    parts_.counters.add(Counter::kRunsAbsorbed);
    add_sum(run);
    return;
  }
  const size_t passed = pass_on(run, now);
  if (passed == run.header.count) {
    parts_.counters.add(Counter::kRunsMerged);
    return;
  }
  parts_.counters.add(run.step.send ? Counter::kRunsAbsorbed : Counter::kRunsStored);
  absorb(run, passed);
}

// Returns what this rank adds to sums: elements of its contribution or, in later stages, of a sum. Returns null if the
// operation fails.
const uint8_t* RingAlgorithm::addends(unsigned block, size_t first, size_t count) noexcept {
  return it_.adds_contributions() ? it_.contribution(block, first, count, parts_.decoded) : it_.elements(block, first);
}

size_t RingAlgorithm::pass_on(const Run& run, Nanos now) noexcept {
  const Step& step = run.step;
  const size_t begin = run.header.first * it_.coder.granule();
  const size_t count = run.header.count;
  size_t done = 0;
  if (!step.send || !parts_.peers.takes(it_, step)) return done;
  if (step.store && it_.coder.finishes()) return done;  // the complete sum must be finished before it is a result
  Outbox& outbox = parts_.egress.outbox(step.link);
  const Outbox::Channel channel = Egress::channel_of(step);
  const unsigned block = run.header.block;
  const uint8_t* const local = addends(block, begin, count);
  if (local == nullptr) return done;
  const ElementContext from = it_.context_of(block, begin, it_.adds_contributions());
  while (done < count) {
    const RunHeader header = it_.run_header(it_.coder, step.phase, block, begin + done);
    const Outbox::Place place = outbox.reserve(channel, header, it_.coder, count - done, step.sink, now);
    if (place.bytes.empty()) break;
    const HopResult hop = it_.coder.hop(run.payload, local, count, from, place.bytes, done);
    if (hop.status == Status::kOk && hop.floats == 0 && outbox.begin_next(channel, now)) continue;
    if (hop.status != Status::kOk || hop.floats == 0) break;
    if (step.store && it_.gives_runs()) {
      it_.append_run(place.bytes.first(hop.bytes), block, begin + done, hop.floats);
    } else if (step.store) {
      // The result is decode(encode(sum)) on this rank too. The local elements are no longer needed.
      store_result(it_.coder, block, begin + done, place.bytes.first(hop.bytes), hop.floats);
      it_.complete(block, begin + done, hop.floats);
    }
    const size_t bytes = outbox.commit(channel, place, header, it_.coder, hop.floats, hop.bytes);
    parts_.egress.count_sent(it_, step.phase, block, step.link, bytes, hop.floats);
    done += hop.floats;
  }
  return done;
}

// Does the same as pass_on(), but stores the sums in the tensor, from where they are sent later. It stores
// decode(encode(sum)), which encodes to the same bytes again.
void RingAlgorithm::absorb(const Run& run, size_t done) noexcept {
  const unsigned block = run.header.block;
  const size_t granule = it_.coder.granule();
  const size_t begin = run.header.first * granule;
  const size_t count = run.header.count;
  const uint8_t* const local = addends(block, begin, count);
  if (local == nullptr) return;
  const ElementContext from = it_.context_of(block, begin, it_.adds_contributions());
  const bool finished = run.step.store && it_.sums_end();
  const size_t mark_first = (begin + done) / granule;
  const size_t mark_end = (begin + count + granule - 1) / granule;
  while (done < count) {
    const HopResult hop = it_.coder.hop(run.payload, local, count, from, parts_.scratch, done);
    if (hop.status != Status::kOk || hop.floats == 0) return;  // cannot happen, as the block is valid
    uint8_t* const sums = it_.elements(block, begin + done);
    (void)it_.coder.decode(parts_.scratch.first(hop.bytes), sums, hop.floats);
    if (finished) it_.coder.finish(sums, hop.floats, from.position + done);
    if (!run.step.send) it_.complete(block, begin + done, hop.floats);
    done += hop.floats;
  }
  if (run.step.send) pending(run.step.phase).mark(block, mark_first, mark_end - mark_first);
}

// Does the same as absorb() for a tensor that already has a sum. It adds to it without encoding, so that nothing is
// selected twice.
void RingAlgorithm::add_sum(const Run& run) noexcept {
  const unsigned block = run.header.block;
  const size_t granule = it_.coder.granule();
  const size_t begin = run.header.first * granule;
  const size_t count = run.header.count;
  uint8_t* const sums = it_.elements(block, begin);
  (void)it_.coder.add(run.payload, sums, count);
  if (run.step.store && it_.sums_end()) it_.coder.finish(sums, count, it_.context_of(block, begin, false).position);
  if (run.step.send) {
    pending(run.step.phase).mark(block, run.header.first, (count + granule - 1) / granule);
  } else {
    it_.complete(block, begin, count);
  }
}

void RingAlgorithm::take_result(const Run& run, bool relayed, Nanos now) noexcept {
  const unsigned block = run.header.block;
  const size_t granule = it_.coder.granule();
  const size_t begin = run.header.first * granule;
  const size_t count = run.header.count;
  if (run.step.send && !relayed && !copy(run, now)) {  // it will be sent from the tensor later
    parts_.counters.add(Counter::kRunsAbsorbed);
    store_with_digests(it_.result_coder, block, begin, run.payload, count);
    it_.memory->result.mark(block, run.header.first, (count + granule - 1) / granule);
    return;
  }
  parts_.counters.add(run.step.send ? Counter::kRunsRelayed : Counter::kRunsStored);
  if (it_.final_stage) {
    it_.store_final(run.payload, block, begin, count, parts_.private_copy);
  } else {
    store_with_digests(it_.result_coder, block, begin, run.payload, count);
  }
}

// Passes a run on inside another packet, if its own packet cannot be relayed. Returns false if there is no space.
bool RingAlgorithm::copy(const Run& run, Nanos now) noexcept {
  if (!parts_.peers.takes(it_, run.step)) return false;
  const unsigned block = run.header.block;
  const size_t count = run.header.count;
  const RunHeader header =
      it_.run_header(it_.result_coder, run.step.phase, block, run.header.first * it_.coder.granule());
  Outbox& outbox = parts_.egress.outbox(run.step.link);
  const Outbox::Place place = outbox.reserve(Outbox::kForwarded, header, it_.result_coder, count, run.step.sink, now);
  if (place.bytes.size() < run.payload.size()) return false;
  std::ranges::copy(run.payload, place.bytes.begin());
  const size_t bytes = outbox.commit(Outbox::kForwarded, place, header, it_.result_coder, count, run.payload.size());
  parts_.egress.count_sent(it_, run.step.phase, block, run.step.link, bytes, count);
  return true;
}

// ---- Sending

bool RingAlgorithm::send_passing(Nanos now) noexcept {
  while (own_sent_ < others_sent_ && !all_sent() && send_next(now)) {
  }
  for (const Phase phase : {Phase::kReduce, Phase::kGather}) {
    while (!pending(phase).empty() && send_pending(phase, now)) {
    }
  }
  return !it_.memory->partial.empty() || !it_.memory->result.empty();
}

bool RingAlgorithm::send_own(Nanos now) noexcept {
  while (!all_sent() && send_next(now)) {
  }
  return !all_sent();
}

// Sends one run that waits in the tensor. Returns false if nothing can be sent now.
bool RingAlgorithm::send_pending(Phase phase, Nanos now) noexcept {
  const size_t granule = it_.coder.granule();
  const PendingBitmap::Run marked = pending(phase).next(it_.offer / granule);
  const size_t first = marked.first * granule;
  const size_t count = std::min(marked.count * granule, it_.blocks.count(marked.block) - first);
  // A sum that waits gets the Step of sums that arrive. A result that waits gets the Step of results that arrive or, if
  // this rank was the last to add, the Step that sends its own results.
  Step step = it_.strategy->arrival(it_.route, phase, marked.block, from_);
  const bool forwarded = step.expected && phase == Phase::kGather;
  if (!step.expected) step = it_.strategy->arrival(it_.route, Phase::kReduce, marked.block, from_);
  // The tensor already has what other ranks will decode, unless finish() has made it a result.
  step.store = step.begins && it_.coder.finishes();
  if (!parts_.peers.takes(it_, step) || !parts_.egress.link(step.link).can_send()) return false;
  uint8_t* const data = forwarded ? read_result(marked.block, first, count) : it_.elements(marked.block, first);
  if (data == nullptr) return false;
  const Egress::Source source{
      .block = marked.block, .first = first, .data = data, .count = count, .contribution = false};
  const size_t sent = send(step, source, now);
  if (sent == 0) return false;
  pending(phase).clear(marked.block, marked.first, (sent + granule - 1) / granule);
  if (phase == Phase::kGather) it_.complete(marked.block, first, sent);
  return true;
}

// Sends a run of this rank's own elements. Returns false if nothing can be sent now.
bool RingAlgorithm::send_next(Nanos now) noexcept {
  const Step step = it_.strategy->start(it_.route, own_block_);
  const size_t block_count = step.expected ? it_.blocks.count(own_block_) : 0;
  if (own_sent_ == block_count) {
    ++own_block_;
    own_sent_ = 0;
    return true;
  }
  const size_t first = own_sent_;
  const size_t count = std::min(block_count - first, it_.offer);
  uint8_t* data = it_.elements(own_block_, first);
  if (it_.route.stage != 0 && step.phase == Phase::kGather) {  // the elements are results of the previous stage
    if (!parts_.peers.takes(it_, step) || !parts_.egress.link(step.link).can_send()) return false;
    data = read_result(own_block_, first, count);
    if (data == nullptr) return false;
  }
  const Egress::Source source{
      .block = own_block_, .first = first, .data = data, .count = count, .contribution = it_.adds_contributions()};
  const size_t sent = send(step, source, now);
  own_sent_ += sent;
  // In Phase::kGather the elements are results, for example a share of a sum in its last stage.
  if (step.phase == Phase::kGather) it_.complete(own_block_, first, sent);
  return sent != 0;
}

// Sends elements. If they are final on this rank, stores in the tensor what the other ranks will decode.
size_t RingAlgorithm::send(const Step& step, const Egress::Source& from, Nanos now) noexcept {
  const Egress::Piece piece = parts_.egress.encode(it_, step, from, now);
  if (piece.elements == 0) return 0;
  const bool goes_on = step.phase == Phase::kGather && it_.route.stage != 0 && !it_.last_stage();
  if (step.phase == Phase::kGather && it_.gives_runs()) {
    it_.append_run(piece.encoded(), from.block, from.first, piece.elements);
  } else if (goes_on && from.data != parts_.private_copy.data()) {
    store_with_digests(it_.result_coder, from.block, from.first, piece.encoded(), piece.elements);
  } else if (step.store) {
    const Coder& coder = step.phase == Phase::kGather ? it_.result_coder : it_.coder;
    (void)coder.decode(piece.encoded(), from.data, piece.elements);
  }
  parts_.egress.commit(it_, step, piece);
  return piece.elements;
}

// ---- Results in the tensor

// Returns the digest of a granule. If the operation has shares, they may begin within a granule of the tensor, so
// digests are indexed by block. Otherwise blocks begin at granules, and digests are indexed by position in the tensor.
// They must outlive a stage, and the next stage divides the tensor differently.
uint32_t* RingAlgorithm::digests(unsigned block, size_t element) const noexcept {
  const size_t granule = it_.coder.granule();
  const size_t place = has_shares(it_.operation.kind) ? it_.memory->result.place(block, element / granule)
                                                      : (it_.base + it_.blocks.offset(block) + element) / granule;
  return &it_.memory->digests[place];
}

// Decodes a result into the tensor, with digests if it will be sent from there in the next stage.
void RingAlgorithm::store_result(const Coder& coder, unsigned block, size_t first, std::span<const uint8_t> encoded,
                                 size_t count) noexcept {
  if (it_.route.stage == 0 || it_.last_stage()) {
    (void)coder.decode(encoded, it_.elements(block, first), count);
  } else {
    store_with_digests(coder, block, first, encoded, count);
  }
}

void RingAlgorithm::store_with_digests(const Coder& coder, unsigned block, size_t first,
                                       std::span<const uint8_t> encoded, size_t count) noexcept {
  const size_t bytes = count * it_.coder.element_bytes();
  const uint8_t* const copy = parts_.private_copy.data();
  (void)coder.decode(encoded, parts_.private_copy.data(), count);
  std::memcpy(it_.elements(block, first), copy, bytes);
  uint32_t* digest = digests(block, first);
  for (size_t at = 0; at < bytes; at += kGranuleBytes) {
    *digest++ = crc32c(kCrcStart, copy + at, std::min(kGranuleBytes, bytes - at));
  }
}

// Copies a result that was stored with digests to memory that no trainer can write to. Returns null, and lets the
// operation fail, if the trainer has changed the result.
uint8_t* RingAlgorithm::read_result(unsigned block, size_t first, size_t count) noexcept {
  const size_t bytes = count * it_.coder.element_bytes();
  uint8_t* const copy = parts_.private_copy.data();
  std::memcpy(copy, it_.elements(block, first), bytes);
  const uint32_t* digest = digests(block, first);
  for (size_t at = 0; at < bytes; at += kGranuleBytes) {
    if (*digest++ == crc32c(kCrcStart, copy + at, std::min(kGranuleBytes, bytes - at))) continue;
    it_.outcome.failure = {
        .code = FailureCode::kAborted, .rank = static_cast<uint16_t>(parts_.config.rank), .field = Field::kTensor};
    return nullptr;
  }
  return copy;
}

// ---- For status displays, traces and failures

unsigned RingAlgorithm::awaited() const noexcept {
  const size_t successor = Topology::kSuccessor;
  const bool follows = from_ != successor && !parts_.peers.started(successor, it_);
  return parts_.topology.rank_at(follows ? successor : from_);
}

std::optional<unsigned> RingAlgorithm::missing_from() const noexcept {
  if (sums_left_ == 0 && results_left_ == 0) return std::nullopt;
  return parts_.topology.rank_at(from_);
}

std::optional<Step> RingAlgorithm::next_step() noexcept {
  for (const Phase phase : {Phase::kReduce, Phase::kGather}) {
    if (pending(phase).empty()) continue;
    const unsigned block = pending(phase).next(1).block;
    const Step step = it_.strategy->arrival(it_.route, phase, block, from_);
    if (step.expected && step.send) return step;
    return it_.strategy->arrival(it_.route, Phase::kReduce, block, from_);
  }
  if (all_sent()) return std::nullopt;
  const Step step = it_.strategy->start(it_.route, own_block_);
  return step.send ? std::optional(step) : std::nullopt;
}

}  // namespace gradlane
