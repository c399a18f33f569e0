// admission.cc - the rules for which operations an exchange takes, and their strategy and codecs (lane's thread)
#include "collectives/exchange/admission.h"

#include <algorithm>

#include "collectives/exchange/coder.h"
#include "collectives/strategy/codec_needs.h"
#include "collectives/strategy/owners.h"
#include "collectives/strategy/rings.h"
#include "compress/encoded_tensor.h"

namespace gradlane {
namespace {

// Returns the number of elements from the first one to the last, with the gaps between shares.
size_t extent(const Operation& operation, unsigned world) {
  const size_t pitch = operation.pitch != 0 ? operation.pitch : operation.count;
  return (has_shares(operation.kind) ? (world - 1) * pitch : 0) + operation.count;
}

// Returns whether `out` is valid: for an all-to-all, it is not null and does not overlap the data; for others, it is
// null.
bool has_way_out(const Operation& operation, unsigned world) {
  if (operation.kind != OpKind::kAllToAll) return operation.out == nullptr;
  if (operation.count == 0) return true;
  const size_t bytes = extent(operation, world) * element_bytes(operation.type);
  const auto data = reinterpret_cast<uintptr_t>(operation.data);
  const auto out = reinterpret_cast<uintptr_t>(operation.out);
  return out != 0 && (out >= data ? out - data : data - out) >= bytes;
}

// Returns the codec of an operation. A gather or scatter has none, and an all-to-all only if it names one. A codec that
// selects is used only for sums.
Codec codec_for(const Operation& operation, const Codec& configured) {
  const Codec plain = find_codec(kNoCodec, 0, configured.isa()).value_or(configured);
  if (operation.kind == OpKind::kGather || operation.kind == OpKind::kScatter) return plain;
  const Codec codec = operation.codec.value_or(operation.kind == OpKind::kAllToAll ? plain : configured);
  return codec.selects() && !reduces(operation.kind) ? plain : codec;
}

// Returns whether the operation adds elements through this codec.
bool sums_coded(const Operation& operation, const CodecRow& row) {
  return reduces(operation.kind) && encoded(operation.type, operation.reduction, row.serves);
}

// Returns whether a strategy moves elements just as `ring` does.
bool is_ring(const StrategyId& id, unsigned world) {
  const bool round_all = id.kind == StrategyId::Kind::kRings && (id.group() == 1 || id.group() == world);
  return id.kind == StrategyId::Kind::kRing || world == 1 || round_all;
}

// Returns whether the operation may have its encoded contribution and its runs, if it has any. An aggregator's results
// may have another codec. A codec that rounds once makes averages, and runs have sums.
bool allows_encoded(const Operation& operation, const Codec& codec, const StrategyId& strategy) {
  if (operation.encoded.floats == 0 && operation.runs.data == nullptr) return true;
  const bool sums = operation.kind == OpKind::kAllReduce && operation.type == ElementType::kFloat32 &&
                    !picks(operation.reduction) && operation.residual == nullptr;
  if (!sums || operation.runs.data == nullptr) return sums;
  const bool one_codec = strategy.kind != StrategyId::Kind::kAggregator && !codec.row().rounds_once;
  return one_codec && encodes_tensors(codec) &&
         codec.max_bytes(kEncodedGroup) + sizeof(ResultRun) <= RunArea::kGroupBytes &&
         operation.runs.bytes >= (operation.count + kEncodedGroup - 1) / kEncodedGroup * RunArea::kGroupBytes;
}

bool can_come_back(const Codec& back, const Codec& codec) {
  return back.is(codec) || (!back.finishes() && back.row().agreement == Agreement::kNone);
}

}  // namespace

Admission::Admission(const ExchangeConfig& config, const Topology& topology)
    : config_(config),
      all_linked_(links_all(config.strategies, config.world)),
      ring_(SubRing::of(topology, config.rank, config.world, 0, 1)) {
  for (const StrategyId& id : config.strategies) {
    std::unique_ptr<const Strategy> made;
    if (is_ring(id, config.world)) {
      made = std::make_unique<Ring>(ring_);
    } else if (id.kind == StrategyId::Kind::kRings) {
      made = std::make_unique<Rings>(topology, config.world, config.rank, id.group());
    } else {
      made = std::make_unique<Owners>(topology, id, config.world, config.rank);
    }
    allowed_.push_back({id, std::move(made)});
  }
}

Exchange::Refusal Admission::check(const Operation& operation) const noexcept {
  using Refusal = Exchange::Refusal;
  if (operation.kind > kLastKind || operation.type > ElementType::kBytes) return Refusal::kBad;
  StrategyId strategy;
  if (strategy_for(operation, strategy) == nullptr) return Refusal::kStrategy;
  if (operation.back_codec && strategy.kind != StrategyId::Kind::kAggregator) return Refusal::kStrategy;
  if (operation.kind == OpKind::kBarrier) return Refusal::kNone;
  const bool sums = reduces(operation.kind);
  if (operation.reduction != Reduction::kSum && !sums) return Refusal::kBad;
  if (operation.reduction == Reduction::kAverage && !is_floating(operation.type)) return Refusal::kBad;
  if (has_root(operation.kind) && operation.root >= config_.world) return Refusal::kBad;
  const Codec codec = codec_for(operation, config_.codec);
  const bool owes = sums_coded(operation, codec.row()) && codec.has_feedback();
  if (operation.residual != nullptr && !owes) return Refusal::kBad;
  if (!allows_encoded(operation, codec, strategy)) return Refusal::kBad;
  const bool coded = encoded(operation.type, operation.reduction, codec.row().serves);
  if (sums_coded(operation, codec.row()) && needs_links(codec.row()) && !all_linked_) return Refusal::kStrategy;
  if (operation.back_codec && !can_come_back(*operation.back_codec, codec)) return Refusal::kBad;
  if (coded && !fits_packet(codec, config_.mtu)) return Refusal::kPacket;
  if (operation.back_codec && !fits_packet(*operation.back_codec, config_.mtu)) return Refusal::kPacket;
  if (operation.pitch != 0 && (!has_shares(operation.kind) || operation.pitch < operation.count)) {
    return Refusal::kBad;
  }
  const size_t share = element_bytes(operation.type) * (has_shares(operation.kind) ? config_.world : 1);
  if (operation.count > config_.max_bytes / share) return Refusal::kTooLarge;
  if (operation.count != 0 && operation.data == nullptr) return Refusal::kBad;
  return has_way_out(operation, config_.world) ? Refusal::kNone : Refusal::kBad;
}

FailureText Admission::packet_fault(const Operation& operation) const noexcept {
  const Codec there = codec_for(operation, config_.codec);
  const bool fits = fits_packet(there, config_.mtu);
  const Codec& codec = fits && operation.back_codec ? *operation.back_codec : there;
  return gradlane::packet_fault(codec, config_.mtu, config_.around);
}

// Returns the strategy of an operation, and sets `id` to its name; null if no strategy serves it. The ring need not be
// allowed: it also serves operations that name it, or that name nothing if the first allowed strategy cannot do them.
const Strategy* Admission::strategy_for(const Operation& operation, StrategyId& id) const noexcept {
  id = {};
  const CodecRow& row = codec_for(operation, config_.codec).row();
  const bool coded = sums_coded(operation, row);
  const auto fits = [&](const StrategyId& it) {
    return supports(it, operation.kind) && (!coded || carries(it, row, config_.world));
  };
  const auto able = [&](const Allowed& each) { return fits(each.id); };
  const bool named = operation.strategy.has_value();
  auto found = named ? std::ranges::find(allowed_, *operation.strategy, &Allowed::id) : allowed_.begin();
  if (found == allowed_.end() || !able(*found)) {
    if ((!named || *operation.strategy == id) && fits(id)) return &ring_;
    if (!named) found = std::ranges::find_if(allowed_, able);
    if (named || found == allowed_.end()) return nullptr;
  }
  id = found->id;
  return found->strategy.get();
}

size_t Admission::memory_bytes(const Operation& operation) const noexcept {
  if (operation.kind == OpKind::kBarrier) return sizeof(int32_t);
  const size_t width = element_bytes(operation.type) * (has_shares(operation.kind) ? config_.world : 1);
  // A rank that adds up a whole tensor keeps a contribution of that size for each rank.
  StrategyId strategy;
  (void)strategy_for(operation, strategy);
  const bool one_block = operation.kind == OpKind::kReduce || strategy.kind == StrategyId::Kind::kAggregator;
  return operation.count * width * (one_block ? config_.world : 1);
}

const Strategy* Admission::complete(Operation& operation) const noexcept {
  if (!has_root(operation.kind)) operation.root = 0;
  operation.codec = codec_for(operation, config_.codec);
  StrategyId id;
  const Strategy* const strategy = strategy_for(operation, id);
  operation.strategy = id;
  if (id.kind != StrategyId::Kind::kAggregator) {
    operation.back_codec = operation.codec;
  } else if (!operation.back_codec) {
    operation.back_codec = find_codec(kNoCodec, 0, operation.codec->isa());
  }
  if (operation.state_pitch == 0) operation.state_pitch = extent(operation, config_.world);
  return strategy;
}

}  // namespace gradlane
