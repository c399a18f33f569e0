// reference.cc - the expected results of an operation, computed from its definition and the codec alone
#include "sim/reference.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "collectives/descriptor.h"
#include "sim/rounded_once.h"

namespace gradlane {
namespace {

using Kind = StrategyId::Kind;

constexpr size_t kGranule = 32;
constexpr uint32_t kNan = 0x7fc00000;

void require(bool ok) {
  if (!ok) throw SetupError("a codec did not take its own block: this is a bug in gradlane");
}

// Returns the first element of part `i` of `parts`. The parts are as equal as whole granules allow.
size_t cut(size_t elements, unsigned i, unsigned parts) {
  const size_t granules = (elements + kGranule - 1) / kGranule;
  return std::min(elements, granules * i / parts * kGranule);
}

// The functions minimum and maximum of IEEE 754-2019.
float smaller(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return std::bit_cast<float>(kNan);
  if (a == b) return std::signbit(a) ? a : b;
  return a < b ? a : b;
}
float larger(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return std::bit_cast<float>(kNan);
  if (a == b) return std::signbit(a) ? b : a;
  return a > b ? a : b;
}

}  // namespace

SimReference::SimReference(const Operation& operation, const Codec& codec, const SimInputs& inputs, unsigned ranks,
                           const SimRun& run)
    : operation_(operation),
      strategy_(operation.strategy.value_or(StrategyId{})),
      codec_(codec.selects() && !reduces(operation.kind) ? find_codec("raw") : codec),
      back_(operation.back_codec.value_or(find_codec("raw"))),
      inputs_(inputs),
      ranks_(ranks),
      run_(run),
      elements_(operation.count * (has_shares(operation.kind) ? ranks : 1)),
      block_(std::max(codec_.max_bytes(SimInputs::kMaxRun), back_.max_bytes(SimInputs::kMaxRun))),
      next_(block_.size()),
      result_(SimInputs::kMaxRun) {
  finish_scan();
  // Nothing is rounded within a group of one. So rings:1 gives the same results as the ring, and is computed as the
  // ring.
  if (strategy_.kind == Kind::kRings && strategy_.group() == 1) strategy_ = {};
  if (strategy_.kind == Kind::kRings) groups_.resize(ranks_ / strategy_.group() * SimInputs::kMaxRun);
}

// ---- Before encoding

void SimReference::finish_scan() {
  const bool two_codecs = strategy_.kind == Kind::kAggregator && !back_.is(codec_);
  const uint64_t seed = seed_of(run_.generation, run_.number, operation_.tag);
  std::vector<TensorScan> scans(ranks_);
  std::vector<float> offers;
  std::vector<float> slice(kScanSlice);
  const size_t block = has_shares(operation_.kind) ? operation_.count : elements_;
  for (unsigned rank = 0; rank < ranks_; ++rank) {
    Codec& codec = codecs_.emplace_back(codec_);
    codec.seed(seed, own_seed_of(seed, rank));
    for (unsigned pass = 0; pass < codec.passes(); ++pass) {
      for (size_t first = 0; first < elements_;) {
        slice.resize(std::min(kScanSlice, block - first % block));
        for (size_t i = 0; i < slice.size(); i += SimInputs::kMaxRun) {
          const size_t count = std::min(SimInputs::kMaxRun, slice.size() - i);
          std::ranges::copy(inputs_.values(rank, first + i, count), slice.begin() + static_cast<ptrdiff_t>(i));
        }
        const EncodeJob job = contribution(rank, first, slice, true);
        codec.scan(scans[rank], {job.in, job.residual, job.second, job.floats, job.position});
        first += slice.size();
      }
      codec.end_pass(scans[rank]);
    }
    const float offer = codec.offer(scans[rank]);
    offers.push_back(std::isfinite(offer) && offer > 0 ? offer : 0.0F);
  }
  const float agreed = agreed_on(codec_.row().agreement, offers);
  for (unsigned rank = 0; rank < ranks_; ++rank) codecs_[rank].finish_scan(scans[rank], agreed);
  if (!two_codecs) back_ = codecs_[0].for_results();
}

// Returns the encode job of a rank's elements from `first` on. If not `contributes`, the elements are sums that it
// owns.
EncodeJob SimReference::contribution(unsigned rank, size_t first, std::span<const float> in, bool contributes) {
  EncodeJob job{.in = in.data(),
                .residual = nullptr,
                .floats = in.size(),
                .out = block_.data(),
                .room = block_.size(),
                .position = first,
                .second = nullptr};
  if (run_.states == nullptr || (*run_.states)[rank].empty()) return job;
  float* const residual = (*run_.states)[rank].data() + first;
  float* const second = codec_.states() > 1 ? residual + elements_ : nullptr;
  const bool adds = codec_.row().is_additive;
  job.residual = contributes ? residual : adds ? nullptr : second;
  job.second = contributes && adds ? second : nullptr;
  return job;
}

// ---- Pieces

std::vector<SimPiece> SimReference::pieces(size_t elements) const {
  switch (operation_.kind) {
    case OpKind::kAllReduce:
      if (strategy_.kind == Kind::kRings) return shares(elements);
      if (strategy_.kind == Kind::kAggregator)
        return {{.end = elements,
                 .first = (strategy_.root() + 1) % ranks_,
                 .shares = ranks_,
                 .holders = ranks_,
                 .owner = strategy_.root()}};
      break;
    case OpKind::kBroadcast:
      return {{0, elements, operation_.root, 1, 0, ranks_}};
    case OpKind::kReduce:
      return {{.end = elements,
               .first = (operation_.root + 1) % ranks_,
               .shares = ranks_,
               .holder = operation_.root,
               .owner = operation_.root}};
    case OpKind::kBarrier:
      return {};
    case OpKind::kGather:
    case OpKind::kScatter:
    case OpKind::kAllToAll:
      return deliveries(elements);
    default:
      break;
  }
  return blocks(elements);
}

// Returns one block per rank.
std::vector<SimPiece> SimReference::blocks(size_t elements) const {
  std::vector<SimPiece> blocks;
  const unsigned p = ranks_;
  // If there are so few granules that some blocks are empty, the owners change with each operation.
  const bool few = strategy_.kind == Kind::kDirect && !has_shares(operation_.kind) && elements <= (p - 1) * kGranule;
  for (unsigned b = 0; b < p; ++b) {
    const bool equal = has_shares(operation_.kind);
    const size_t begin = equal ? elements / p * b : cut(elements, b, p);
    const size_t end = equal ? elements / p * (b + 1) : cut(elements, b + 1, p);
    const unsigned after = (b + 1) % p;
    const unsigned owner = (b + (few ? run_.number : 0)) % p;
    switch (operation_.kind) {
      case OpKind::kReduceScatter:
        blocks.push_back({begin, end, after, p, b, 1, 0, 0, owner});
        break;
      case OpKind::kAllGather:
        blocks.push_back({begin, end, b, 1, 0, p});
        break;
      default:
        blocks.push_back({begin, end, after, p, 0, p, 0, 0, owner});
    }
  }
  return blocks;
}

// Returns one piece for each block of each rank, of a gather, scatter or all-to-all.
std::vector<SimPiece> SimReference::deliveries(size_t elements) const {
  std::vector<SimPiece> blocks;
  const size_t each = elements / ranks_;
  for (unsigned rank = 0; rank < ranks_; ++rank) {
    for (unsigned i = 0; i < ranks_; ++i) {
      const size_t begin = i * each;
      SimPiece piece{
          .begin = begin, .end = begin + each, .first = rank, .holder = rank, .source = begin, .plain = true};
      if (operation_.kind == OpKind::kGather && rank == operation_.root) piece.first = i;
      if (operation_.kind == OpKind::kScatter && i == rank) piece.first = operation_.root;
      if (operation_.kind == OpKind::kAllToAll) {
        piece.first = i;
        piece.source = rank * each;
        piece.plain = i == rank;
      }
      blocks.push_back(piece);
    }
  }
  return blocks;
}

// Returns the blocks of all shares, for rings:G.
std::vector<SimPiece> SimReference::shares(size_t elements) const {
  std::vector<SimPiece> blocks;
  const unsigned members = strategy_.group();
  const unsigned groups = ranks_ / members;
  for (unsigned i = 0; i < members; ++i) {
    const size_t begin = cut(elements, i, members);
    const size_t count = cut(elements, i + 1, members) - begin;
    for (unsigned j = 0; j < groups; ++j) {
      blocks.push_back(
          {begin + cut(count, j, groups), begin + cut(count, j + 1, groups), (i + 1) % members, members, 0, ranks_, j});
    }
  }
  return blocks;
}

std::span<const float> SimReference::input(const SimPiece& piece, unsigned share, size_t first, size_t count) const {
  return inputs_.values((piece.first + share) % ranks_, first, count);
}

// ---- Primitives

// Computes out = decode(encode(in)).
void SimReference::round(const Codec& codec, std::span<const float> in, std::span<float> out) {
  const EncodeResult encoded = codec.encode(in, block_);
  require(encoded.floats == in.size());
  require(codec.decode({block_.data(), encoded.bytes}, out) == Status::kOk);
}

// Encodes the first contribution, adds the other ones in hops, and decodes the sum. `local(i)` returns the rank of
// contribution i, and its job.
template <class Local>
void SimReference::hops(unsigned shares, std::span<float> out, Local&& local) {
  const auto [start, job] = local(0U);
  const EncodeResult encoded = codecs_[start].encode(job);
  require(encoded.floats == out.size());
  size_t bytes = encoded.bytes;
  for (unsigned i = 1; i < shares; ++i) {
    const auto [rank, own] = local(i);
    const HopResult hop = codecs_[rank].hop({.block = block_.data(),
                                             .block_bytes = bytes,
                                             .local = own.in,
                                             .residual = own.residual,
                                             .floats = own.floats,
                                             .first = 0,
                                             .out = next_.data(),
                                             .room = next_.size(),
                                             .position = own.position,
                                             .second = own.second});
    require(hop.status == Status::kOk && hop.floats == out.size());
    bytes = hop.bytes;
    block_.swap(next_);
  }
  require(codecs_[0].decode({block_.data(), bytes}, out) == Status::kOk);
}

// Turns a sum into the result that all ranks get.
void SimReference::result(unsigned owner, size_t first, std::span<float> out) {
  codecs_[owner].finish(out, first);
  const EncodeResult encoded = back_.encode_sum(contribution(owner, first, out, false));
  require(encoded.floats == out.size());
  require(back_.decode({block_.data(), encoded.bytes}, out) == Status::kOk);
}

// ---- Strategies

// Adds without rounding, and rounds sums or averages once.
void SimReference::sum_once(const SimPiece& piece, size_t first, std::span<float> out) {
  std::vector<std::vector<float>> terms(out.size());
  for (unsigned i = 0; i < piece.shares; ++i) {
    const std::span<const float> values = input(piece, i, first, out.size());
    for (size_t at = 0; at < out.size(); ++at) terms[at].push_back(values[at]);
  }
  const unsigned divisor = operation_.reduction == Reduction::kAverage ? ranks_ : 1;
  for (size_t at = 0; at < out.size(); ++at) out[at] = rounded_once<float>(terms[at], divisor);
  result(piece.owner, first, out);
}

void SimReference::sum(const SimPiece& piece, size_t first, std::span<float> out) {
  for (unsigned i = 0; i < piece.shares; ++i) {
    const unsigned rank = (piece.first + i) % ranks_;
    const EncodeResult encoded =
        codecs_[rank].encode(contribution(rank, first, input(piece, i, first, out.size()), true));
    require(encoded.floats == out.size());
    const std::span<const uint8_t> block(block_.data(), encoded.bytes);
    require((i == 0 ? codecs_[rank].decode(block, out) : codecs_[rank].decode_add(block, out)) == Status::kOk);
  }
  result(piece.owner, first, out);
}

void SimReference::ring(const SimPiece& piece, size_t first, std::span<float> out) {
  const bool sums = reduces(operation_.kind);
  hops(piece.shares, out, [&](unsigned i) {
    const unsigned rank = (piece.first + i) % ranks_;
    EncodeJob job = contribution(rank, first, input(piece, i, first, out.size()), true);
    if (!sums) job.residual = job.second = nullptr;
    return std::pair(rank, job);
  });
  if (sums && (codec_.finishes() || !codec_.row().is_additive)) result(piece.owner, first, out);
}

// Adds the sums of the groups. They are not contributions, so they are encoded by encode_sum(), not by encode().
void SimReference::sums_of_groups(const SimPiece& piece, std::span<float> out) {
  const unsigned groups = ranks_ / piece.shares;
  for (unsigned i = 0; i < groups; ++i) {
    const std::span<float> sum = std::span(groups_).subspan((piece.group + 1 + i) % groups * SimInputs::kMaxRun);
    const std::span<float> local = sum.first(out.size());
    if (i != 0) {
      const EncodeResult encoded = codecs_[0].encode_sum(contribution(0, 0, out, false));
      require(encoded.floats == out.size());
      require(codecs_[0].decode_add({block_.data(), encoded.bytes}, local) == Status::kOk);
    }
    std::ranges::copy(local, out.begin());
  }
}

void SimReference::across_groups(const SimPiece& piece, size_t first, std::span<float> out) {
  const unsigned members = piece.shares;
  const unsigned groups = ranks_ / members;
  const auto of_group = [&](unsigned g) { return std::span(groups_).subspan(g * SimInputs::kMaxRun, out.size()); };
  for (unsigned g = 0; g < groups; ++g) {
    hops(members, of_group(g), [&](unsigned i) {
      const unsigned rank = g * members + (piece.first + i) % members;
      return std::pair(rank, contribution(rank, first, inputs_.values(rank, first, out.size()), true));
    });
  }
  if (codec_.selects()) {
    sums_of_groups(piece, out);
    result(0, first, out);
    return;
  }
  hops(groups, out, [&](unsigned i) {
    EncodeJob job = contribution(0, first, of_group((piece.group + 1 + i) % groups), true);
    job.residual = job.second = nullptr;
    return std::pair(0U, job);
  });
}

void SimReference::pick(size_t first, std::span<float> out) const {
  for (unsigned rank = 0; rank < ranks_; ++rank) {
    const std::span<const float> values = inputs_.values(rank, first, out.size());
    for (size_t i = 0; i < out.size(); ++i) {
      if (rank == 0) {
        out[i] = values[i];
      } else {
        out[i] = operation_.reduction == Reduction::kMin ? smaller(out[i], values[i]) : larger(out[i], values[i]);
      }
    }
  }
}

std::span<const float> SimReference::run(const SimPiece& piece, size_t first, size_t count) {
  if (piece.plain) return input(piece, 0, first - piece.begin + piece.source, count);
  const std::span<float> out(result_.data(), count);
  const bool picks = operation_.reduction == Reduction::kMin || operation_.reduction == Reduction::kMax;
  if (reduces(operation_.kind) && picks) {
    pick(first, out);
  } else if (delivers(operation_.kind)) {
    round(codec_, input(piece, 0, first - piece.begin + piece.source, count), out);
  } else if (reduces(operation_.kind) && codec_.row().rounds_once && ranks_ > 1) {
    sum_once(piece, first, out);
    return out;
  } else if (strategy_.kind == Kind::kRings) {
    across_groups(piece, first, out);
  } else if (strategy_.kind != Kind::kRing && reduces(operation_.kind)) {
    sum(piece, first, out);
  } else {
    ring(piece, first, out);
  }
  if (reduces(operation_.kind) && operation_.reduction == Reduction::kAverage) {
    for (float& value : out) {
      value /= static_cast<float>(ranks_);
      if (std::isnan(value)) value = std::bit_cast<float>(kNan);
    }
  }
  return out;
}

}  // namespace gradlane
