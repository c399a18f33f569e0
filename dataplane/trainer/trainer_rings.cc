// trainer_rings.cc - taking and checking submissions, writing completions (worker thread only)
#include "dataplane/trainer/trainer_rings.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "collectives/counters.h"
#include "collectives/strategy/codec_needs.h"
#include "compress/encoded_tensor.h"

namespace gradlane {
namespace {

static_assert(static_cast<int>(OpKind::kAllReduce) == GL_ALL_REDUCE);
static_assert(static_cast<int>(OpKind::kReduceScatter) == GL_REDUCE_SCATTER);
static_assert(static_cast<int>(OpKind::kAllGather) == GL_ALL_GATHER);
static_assert(static_cast<int>(OpKind::kBroadcast) == GL_BROADCAST);
static_assert(static_cast<int>(OpKind::kBarrier) == GL_BARRIER);
static_assert(static_cast<int>(OpKind::kReduce) == GL_REDUCE);
static_assert(static_cast<int>(OpKind::kGather) == GL_GATHER);
static_assert(static_cast<int>(OpKind::kScatter) == GL_SCATTER);
static_assert(static_cast<int>(OpKind::kAllToAll) == GL_ALL_TO_ALL);
static_assert(static_cast<int>(kLastKind) == GL_ALL_TO_ALL);
static_assert(kEncodedBlock == GL_ENCODED_BLOCK);
static_assert(static_cast<int>(ElementType::kFloat32) == GRADLANE_FLOAT32);
static_assert(static_cast<int>(ElementType::kFloat64) == GRADLANE_FLOAT64);
static_assert(static_cast<int>(ElementType::kFloat16) == GRADLANE_FLOAT16);
static_assert(static_cast<int>(ElementType::kBfloat16) == GRADLANE_BFLOAT16);
static_assert(static_cast<int>(ElementType::kInt32) == GRADLANE_INT32);
static_assert(static_cast<int>(ElementType::kInt64) == GRADLANE_INT64);
static_assert(static_cast<int>(ElementType::kBytes) == GRADLANE_BYTES);

uint32_t load_acquire(const uint32_t& field) noexcept { return __atomic_load_n(&field, __ATOMIC_ACQUIRE); }
uint32_t load_seq_cst(const uint32_t& field) noexcept { return __atomic_load_n(&field, __ATOMIC_SEQ_CST); }
template <class T>
void store_relaxed(T& field, T value) noexcept {
  __atomic_store_n(&field, value, __ATOMIC_RELAXED);
}
void store_seq_cst(uint32_t& field, uint32_t value) noexcept { __atomic_store_n(&field, value, __ATOMIC_SEQ_CST); }

// The fault of a submission; `a` and `b` are as in TrainerFault.
struct Refusal {
  TrainerFault fault = TrainerFault::kNone;
  uint64_t a = 0;
  uint64_t b = 0;
};

uint64_t id_of(const Codec& codec) noexcept { return static_cast<uint64_t>(codec.id()); }

CodecArguments arguments_of(uint64_t bits) noexcept { return std::bit_cast<CodecArguments>(bits); }

// Reads the codecs of an operation. `codec` is for contributions; operation.back_codec is for the results of an
// aggregator.
Refusal read_codecs(const gl_submission& entry, const SubmissionLimits& limits, Operation& operation,
                    Codec& codec) noexcept {
  const Isa isa = limits.codec.isa();
  codec = limits.codec;
  if ((entry.flags & GL_FLAG_CODEC) != 0) {
    operation.codec = find_codec(static_cast<CodecId>(entry.codec), arguments_of(entry.codec_arguments), isa);
    if (!operation.codec) return {TrainerFault::kBadCodec, entry.codec, entry.codec_arguments};
    codec = *operation.codec;
  }
  if ((entry.flags & GL_FLAG_BACK) != 0) {
    operation.back_codec = find_codec(static_cast<CodecId>(entry.back_codec), arguments_of(entry.back_arguments), isa);
    if (!operation.back_codec) return {TrainerFault::kBadCodec, entry.back_codec, entry.back_arguments};
  }
  if ((entry.flags & GL_FLAG_EXACT) != 0) {
    codec = codec_of(FloatForm::kFp32, isa);
    operation.codec = codec;
    operation.back_codec.reset();
  }
  return {};
}

// Returns whether the operation reduces elements that go through this codec.
bool adds_up(const Operation& operation, const Codec& codec) noexcept {
  return reduces(operation.kind) && encoded(operation.type, operation.reduction, codec.row().serves);
}

// Reads the strategy. Sets operation.strategy even if none is named, so that trainers of a node agree whether they name
// the daemon's strategy or none. A codec for the results depends on the strategy, so it is checked here.
Refusal read_strategy(const gl_submission& entry, const SubmissionLimits& limits, const Codec& codec,
                      Operation& operation) noexcept {
  const bool sums = adds_up(operation, codec);
  const auto carried = [&](const StrategyId& each) { return !sums || carries(each, codec.row(), limits.ranks); };
  const auto able = [&](const StrategyId& each) { return supports(each, operation.kind) && carried(each); };
  const Refusal refusal{TrainerFault::kBadStrategy, entry.strategy, entry.kind};
  const auto does_not_add = [&](uint32_t code) -> Refusal { return {TrainerFault::kDoesNotAdd, id_of(codec), code}; };
  if (entry.strategy != 0) {
    operation.strategy = strategy_of(entry.strategy);
    if (!operation.strategy || !supports(*operation.strategy, operation.kind)) return refusal;
    const bool ring = operation.strategy == StrategyId{};
    if (!ring && std::ranges::find(limits.strategies, *operation.strategy) == limits.strategies.end()) return refusal;
    if (!carried(*operation.strategy)) return does_not_add(entry.strategy);
  } else {
    // Choose the default strategy if it can do the operation, else the ring, else the first allowed strategy that can.
    const auto first = able(StrategyId{}) ? limits.strategies.begin() : std::ranges::find_if(limits.strategies, able);
    if (first == limits.strategies.end()) return carried(StrategyId{}) ? refusal : does_not_add(StrategyId{}.code());
    operation.strategy = able(*first) ? *first : StrategyId{};
  }
  const bool back = operation.strategy->kind == StrategyId::Kind::kAggregator && operation.kind == OpKind::kAllReduce;
  if ((entry.flags & GL_FLAG_BACK) != 0 && !back) return {TrainerFault::kBadOperation};
  return sums && needs_links(codec.row()) && !limits.links ? Refusal{TrainerFault::kNoLinks, id_of(codec)} : Refusal{};
}

// Reads the reduction. Returns false if the flags name several.
bool read_reduction(uint32_t flags, Reduction& reduction) noexcept {
  switch (flags & (GL_FLAG_AVERAGE | GL_FLAG_MIN | GL_FLAG_MAX)) {
    case 0:
      return true;
    case GL_FLAG_AVERAGE:
      reduction = Reduction::kAverage;
      return true;
    case GL_FLAG_MIN:
      reduction = Reduction::kMin;
      return true;
    case GL_FLAG_MAX:
      reduction = Reduction::kMax;
      return true;
    default:
      return false;
  }
}

bool reduction_fits(const Operation& operation) noexcept {
  if (operation.reduction == Reduction::kSum) return true;
  return reduces(operation.kind) && (picks(operation.reduction) || is_floating(operation.type));
}

uint64_t root_of(const gl_submission& entry, OpKind kind) noexcept {
  if (!has_root(kind)) return 0;
  return has_shares(kind) ? entry.block_root : entry.root;
}

// Returns whether the operation is possible with local_reduce. The trainers of a node are then one rank, and their
// blocks, side by side, are its block.
bool fits_nodes(const Operation& operation) noexcept {
  return operation.kind <= OpKind::kBarrier && (!has_shares(operation.kind) || operation.pitch == operation.count);
}

// Reads and checks the reduction, codecs, strategy and size of an operation.
Refusal read_operation(const gl_submission& entry, const SubmissionLimits& limits, Operation& operation,
                       unsigned& states) noexcept {
  operation.count = entry.count;
  const uint64_t root = root_of(entry, operation.kind);
  operation.root = static_cast<unsigned>(root);
  operation.pitch = !has_shares(operation.kind) ? 0 : entry.pitch != 0 ? entry.pitch : entry.count;
  const bool one_reduction = read_reduction(entry.flags, operation.reduction);
  Codec codec = limits.codec;
  if (operation.kind != OpKind::kBarrier) {
    const Refusal refusal = read_codecs(entry, limits, operation, codec);
    if (refusal.fault != TrainerFault::kNone) return refusal;
  }
  const Refusal refusal = read_strategy(entry, limits, codec, operation);
  if (refusal.fault != TrainerFault::kNone || operation.kind == OpKind::kBarrier) return refusal;
  const bool feedback = (entry.flags & GL_FLAG_RESIDUAL) != 0;
  states = feedback ? codec.states() : 0;
  const bool twice = limits.local_reduce && codec.row().rounds_once && adds_up(operation, codec);
  const bool owes = adds_up(operation, codec) && codec.has_feedback();
  const bool sensible = root < limits.world && one_reduction && !twice && reduction_fits(operation) &&
                        (!feedback || owes) && (!limits.local_reduce || fits_nodes(operation)) &&
                        (!has_shares(operation.kind) || operation.pitch >= entry.count);
  if (!sensible) return {TrainerFault::kBadOperation};

  const size_t element = element_bytes(operation.type) * (has_shares(operation.kind) ? limits.world : 1);
  if (operation.count > limits.max_bytes / element) {
    const bool fits = entry.count <= ~uint64_t{0} / element;
    return {TrainerFault::kTooLarge, fits ? entry.count * element : ~uint64_t{0}, limits.max_bytes};
  }
  return {};
}

}  // namespace

// ---- Coming and going

void TrainerRings::attach(const Command& command, const Counters& counters) noexcept {
  *this = TrainerRings{};
  control_ = command.control;
  lane_ = command.lane;
  completion_fd_ = command.completion_fd;
  base_ = figures(counters);
}

void TrainerRings::detach() noexcept { *this = TrainerRings{}; }

TrainerRings::Base TrainerRings::figures(const Counters& counters) noexcept {
  const uint64_t again = counters[Counter::kRetransmitTimeout] + counters[Counter::kRetransmitSack];
  return {counters[Counter::kDataBytes], counters[Counter::kDataSent] + again, again};
}

void TrainerRings::publish(const Counters& counters) noexcept {
  if (!attached()) return;
  const Base now = figures(counters);
  store_relaxed(lane_->data_bytes, now.data_bytes - base_.data_bytes);
  store_relaxed(lane_->data_packets, now.data_packets - base_.data_packets);
  store_relaxed(lane_->beats, ++beats_);
  store_relaxed(lane_->retransmitted, now.retransmitted - base_.retransmitted);
}

// ---- Submissions

bool TrainerRings::fault(FaultReport& report, TrainerFault fault, uint64_t a, uint64_t b, uint64_t c) noexcept {
  faulty_ = true;
  report.a = a;
  report.b = b;
  report.c = c;
  report.fault.store(fault, std::memory_order_release);
  return false;
}

std::optional<Submission> TrainerRings::next(const SubmissionLimits& limits, FaultReport& report) noexcept {
  if (!attached() || faulty_) return std::nullopt;
  const uint32_t tail = load_acquire(lane_->submit_tail);
  if (tail == submit_head_) return std::nullopt;
  if (tail - submit_head_ > GL_SLOTS) {
    (void)fault(report, TrainerFault::kRingCounts, submit_head_, tail);
    return std::nullopt;
  }
  const uint32_t unread = complete_tail_ - load_acquire(lane_->complete_head);
  if (unread > GL_SLOTS) {
    (void)fault(report, TrainerFault::kRingCounts, complete_tail_ - unread, complete_tail_);
    return std::nullopt;
  }
  gl_submission entry;
  std::memcpy(&entry, &lane_->submissions[submit_head_ % GL_SLOTS], sizeof(entry));
  const bool operation = entry.kind != GL_CANCEL && entry.kind != GL_RESUME;
  if (operation && open_ + unread >= GL_SLOTS) return std::nullopt;
  __atomic_store_n(&lane_->submit_head, ++submit_head_, __ATOMIC_RELEASE);
  Submission result;
  if (!check(entry, limits, result, report)) return std::nullopt;
  if (operation) ++open_;
  return result;
}

bool TrainerRings::check(const gl_submission& entry, const SubmissionLimits& limits, Submission& result,
                         FaultReport& report) noexcept {
  result.cookie = entry.cookie;
  result.ends_seen = entry.ends_seen;
  result.slot = entry.slot;
  if (entry.kind == GL_CANCEL) {
    result.cancel = true;
    return true;
  }
  if (entry.kind == GL_RESUME) {
    result.resume = true;
    return true;
  }
  const bool encodes = entry.kind == GL_ENCODE;
  if ((entry.kind > GL_ALL_TO_ALL && !encodes) || entry.type > GRADLANE_BYTES) {
    return fault(report, TrainerFault::kBadKind, entry.kind, entry.type);
  }
  Operation& operation = result.operation;
  operation.kind = encodes ? OpKind::kAllReduce : static_cast<OpKind>(entry.kind);
  operation.type = static_cast<ElementType>(entry.type);
  operation.tag = entry.tag;
  operation.timeout = entry.timeout_ms * kMillisecond;
  result.cancelled = (entry.flags & GL_FLAG_CANCELLED) != 0;
  unsigned states = 0;
  if (const Refusal why = read_operation(entry, limits, operation, states); why.fault != TrainerFault::kNone) {
    return fault(report, why.fault, why.a, why.b);
  }
  if (operation.kind == OpKind::kBarrier) return true;
  // The bytes reach from the start of the first block to the end of the last one. Other parts of the tensor may lie
  // between blocks.
  const size_t width = element_bytes(operation.type);
  size_t bytes = operation.count * width;
  if (has_shares(operation.kind) && bytes != 0) {
    size_t apart = 0;
    const bool fits = !__builtin_mul_overflow(operation.pitch, (limits.world - 1) * width, &apart) &&
                      !__builtin_add_overflow(bytes, apart, &bytes);
    if (!fits) return fault(report, TrainerFault::kOutOfBounds, entry.offset, ~uint64_t{0}, 0);
  }
  uint8_t* place = nullptr;
  if (bytes != 0) {
    if (!locate(entry.segment, entry.offset, bytes, place, report)) return false;
    result.segment = entry.segment;
  }
  operation.data = place;
  if ((entry.flags & GL_FLAG_RUNS) != 0 && !check_runs(entry, limits, result, report)) return false;
  if (encodes || (entry.flags & GL_FLAG_ENCODED) != 0) return check_encoded(entry, limits, result, report);
  if (operation.kind == OpKind::kAllToAll) return check_out(entry, bytes, result, report);
  return states == 0 || bytes == 0 || check_residual(entry, bytes, states, result, report);
}

// Checks the residual. `bytes` is the length of one state array. The arrays follow one another.
bool TrainerRings::check_residual(const gl_submission& entry, size_t bytes, unsigned states, Submission& result,
                                  FaultReport& report) noexcept {
  const size_t floats = bytes / sizeof(float);
  const size_t pitch = states > 1 && entry.state_pitch != 0 ? entry.state_pitch : floats;
  if (pitch < floats) return fault(report, TrainerFault::kBadOperation);
  size_t all = 0;
  const bool fits =
      !__builtin_mul_overflow(pitch, (states - 1) * sizeof(float), &all) && !__builtin_add_overflow(all, bytes, &all);
  const uint64_t offset = entry.residual_offset;
  if (!fits || offset % sizeof(float) != 0) return fault(report, TrainerFault::kOutOfBounds, offset, bytes, 0);
  uint8_t* place = nullptr;
  if (!locate(entry.residual_segment, offset, all, place, report)) return false;
  result.operation.residual = reinterpret_cast<float*>(place);
  result.operation.state_pitch = pitch;
  result.residual_segment = entry.residual_segment;
  return true;
}

// Checks the output of an all-to-all.
bool TrainerRings::check_out(const gl_submission& entry, size_t bytes, Submission& result,
                             FaultReport& report) noexcept {
  if (bytes == 0) return true;
  uint8_t* place = nullptr;
  if (!locate(entry.residual_segment, entry.residual_offset, bytes, place, report)) return false;
  const auto out = reinterpret_cast<uintptr_t>(place);
  const auto data = reinterpret_cast<uintptr_t>(result.operation.data);
  if ((out >= data ? out - data : data - out) < bytes) return fault(report, TrainerFault::kBadOperation);
  result.operation.out = place;
  result.residual_segment = entry.residual_segment;
  return true;
}

// Checks a contribution that is, or will be, encoded.
bool TrainerRings::check_encoded(const gl_submission& entry, const SubmissionLimits& limits, Submission& result,
                                 FaultReport& report) noexcept {
  const Operation& operation = result.operation;
  EncodedContribution& it = result.operation.encoded;
  it.codec = limits.codec;
  if ((entry.flags & GL_FLAG_CODEC) != 0) {
    it.codec = find_codec(static_cast<CodecId>(entry.codec), arguments_of(entry.codec_arguments), limits.codec.isa());
  }
  result.encodes = entry.kind == GL_ENCODE;
  it.first = entry.encoded_first;
  it.floats = entry.encoded_count;
  const bool inside = operation.count <= it.floats && it.first <= it.floats - operation.count;
  const bool whole_blocks = it.first % kEncodedBlock == 0 &&
                            (operation.count % kEncodedBlock == 0 || it.first + operation.count == it.floats);
  const bool sums = operation.reduction == Reduction::kSum || operation.reduction == Reduction::kAverage;
  const bool sensible = it.codec && encodes_tensors(*it.codec) && it.floats != 0 && inside && sums &&
                        (whole_blocks || !result.encodes) && operation.kind == OpKind::kAllReduce &&
                        operation.type == ElementType::kFloat32 && (entry.flags & GL_FLAG_RESIDUAL) == 0 &&
                        !limits.local_reduce;
  if (!sensible) return fault(report, TrainerFault::kBadOperation);
  uint8_t* place = nullptr;
  if (!locate(entry.residual_segment, entry.residual_offset, entry.encoded_bytes, place, report)) return false;
  // No more floats than any tensor may have, so that the most bytes do not overflow.
  const bool fits =
      it.floats <= SIZE_MAX / 16 && (!result.encodes || entry.encoded_bytes >= max_encoded_bytes(*it.codec, it.floats));
  if (!fits) return fault(report, TrainerFault::kOutOfBounds, entry.residual_offset, entry.encoded_bytes, 0);
  const auto begin = reinterpret_cast<uintptr_t>(place);
  const auto data = reinterpret_cast<uintptr_t>(operation.data);
  const bool apart =
      begin >= data ? begin - data >= operation.count * sizeof(float) : data - begin >= entry.encoded_bytes;
  if (!apart && operation.count != 0) return fault(report, TrainerFault::kBadOperation);
  it.bytes = {place, entry.encoded_bytes};
  result.residual_segment = entry.residual_segment;
  return true;
}

// Checks the buffer for a result as encoded runs. The exchange would refuse the same operations, but here they count as
// a fault of the trainer.
bool TrainerRings::check_runs(const gl_submission& entry, const SubmissionLimits& limits, Submission& result,
                              FaultReport& report) noexcept {
  const Operation& operation = result.operation;
  const Codec codec = operation.codec.value_or(limits.codec);
  const bool sums = operation.reduction == Reduction::kSum || operation.reduction == Reduction::kAverage;
  const bool sensible = entry.kind == GL_ALL_REDUCE && operation.type == ElementType::kFloat32 && sums &&
                        encodes_tensors(codec) && !codec.row().rounds_once &&
                        operation.strategy->kind != StrategyId::Kind::kAggregator &&
                        (entry.flags & GL_FLAG_RESIDUAL) == 0 && !limits.local_reduce;
  if (!sensible) return fault(report, TrainerFault::kBadOperation);
  if (!locate(entry.runs_segment, entry.runs_offset, gl_runs_space(operation.count), result.runs, report)) return false;
  if (entry.runs_offset % alignof(gradlane_lane_runs) != 0) return fault(report, TrainerFault::kBadOperation);
  result.runs_segment = entry.runs_segment;
  return true;
}

bool TrainerRings::locate(uint32_t segment, uint64_t offset, size_t bytes, uint8_t*& place,
                          FaultReport& report) noexcept {
  if (segment >= GL_MAX_SEGMENTS || segments_[segment].base == nullptr) {
    return fault(report, TrainerFault::kBadSegment, segment);
  }
  const Segment& it = segments_[segment];
  if (offset > it.bytes || bytes > it.bytes - offset) {
    return fault(report, TrainerFault::kOutOfBounds, offset, bytes, it.bytes);
  }
  place = it.base + offset;
  return true;
}

// ---- Completions

void TrainerRings::complete(uint64_t cookie, const FailureCause& failure, const End& end) noexcept {
  if (!attached()) return;
  gl_completion entry{};
  entry.cookie = cookie;
  entry.code = failure.empty() ? GRADLANE_OK : GRADLANE_FAILED;
  entry.cause = static_cast<uint8_t>(failure.cause);
  entry.residual_cleared = end.residual_cleared ? 1 : 0;
  entry.tells_end = end.tells_end && !failure.empty() ? 1 : 0;
  entry.sent_bytes = end.sent_bytes;
  entry.loss = {static_cast<uint32_t>(end.loss.values), static_cast<uint32_t>(end.loss.zeroed), end.loss.squares,
                end.loss.lost_squares};
  entry.begun_ns = end.begun;
  entry.ended_ns = end.ended;
  std::memcpy(entry.text, failure.text.c_str(), failure.text.size());
  std::memcpy(&lane_->completions[complete_tail_ % GL_SLOTS], &entry, sizeof(entry));
  store_seq_cst(lane_->complete_tail, ++complete_tail_);
  --open_;
  completed_ = true;
}

void TrainerRings::publish_ends(uint32_t ends) noexcept {
  if (attached()) store_relaxed(lane_->ends, ends);  // the store to complete_tail that follows publishes it
}

void TrainerRings::notify(bool more, Nanos now) noexcept {
  constexpr Nanos kHeldBack = 50'000;
  if (!completed_ || !attached()) return;
  const uint32_t unread = complete_tail_ - load_acquire(lane_->complete_head);
  if (held_since_ == 0) held_since_ = now;
  if (more && open_ != 0 && unread != 0 && unread < GL_SLOTS / 4 && now < held_since_ + kHeldBack) return;
  completed_ = false;
  held_since_ = 0;
  if (unread == 0) return;  // the trainer has read them already
  if (load_seq_cst(control_->waiting) == 0) return;
  gl_ring(completion_fd_);
}

// ---- Sleeping

bool TrainerRings::fall_asleep() noexcept {
  if (!attached()) return true;
  store_seq_cst(lane_->asleep, 1);
  if (faulty_ || load_seq_cst(lane_->submit_tail) == submit_head_) return true;
  return open_ + (complete_tail_ - load_acquire(lane_->complete_head)) == GL_SLOTS;
}

void TrainerRings::wake_up() noexcept {
  if (attached()) store_seq_cst(lane_->asleep, 0);
}

}  // namespace gradlane
