// reference.cc - what must come out of an operation, from its definition and the codec alone
#include "tools/simnet/reference.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/error.h"

namespace gradlane {
namespace {

using Kind = StrategyId::Kind;

constexpr size_t kGranule = 32;
constexpr uint32_t kNan = 0x7fc00000;

void require(bool ok) {
  if (!ok) throw SetupError("a codec did not take its own block: this is a bug in gradlane");
}

// The element that part `i` of `parts` begins with, of parts that are as equal as whole granules can be.
size_t cut(size_t elements, unsigned i, unsigned parts) {
  const size_t granules = (elements + kGranule - 1) / kGranule;
  return std::min(elements, granules * i / parts * kGranule);
}

// IEEE 754-2019, minimum and maximum.
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

SimReference::SimReference(const Operation& operation, const Codec& codec, const SimInputs& inputs, unsigned ranks)
    : operation_(operation),
      strategy_(operation.strategy.value_or(StrategyId{})),
      codec_(codec),
      back_(operation.back_codec.value_or(find_codec("raw"))),
      inputs_(inputs),
      ranks_(ranks),
      block_(std::max(codec_.max_bytes(SimInputs::kMaxRun), back_.max_bytes(SimInputs::kMaxRun))),
      next_(block_.size()),
      result_(SimInputs::kMaxRun) {
  // What is the same as the ring is the ring: nothing is rounded within a group of one.
  if (strategy_.kind == Kind::kRings && strategy_.group() == 1) strategy_ = {};
  if (strategy_.kind == Kind::kRings) groups_.resize(ranks_ / strategy_.group() * SimInputs::kMaxRun);
  if (strategy_.kind != Kind::kAggregator) back_ = codec_;
}

// ---- Pieces

std::vector<SimPiece> SimReference::pieces(size_t elements) const {
  switch (operation_.kind) {
    case OpKind::kAllReduce:
      if (strategy_.kind == Kind::kRings) return shares(elements);
      if (strategy_.kind == Kind::kAggregator)
        return {{0, elements, (strategy_.root() + 1) % ranks_, ranks_, 0, ranks_}};
      break;
    case OpKind::kBroadcast:
      return {{0, elements, operation_.root, 1, 0, ranks_}};
    case OpKind::kReduce:
      return {{0, elements, (operation_.root + 1) % ranks_, ranks_, operation_.root, 1}};
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

// A block for each rank.
std::vector<SimPiece> SimReference::blocks(size_t elements) const {
  std::vector<SimPiece> blocks;
  const unsigned p = ranks_;
  for (unsigned b = 0; b < p; ++b) {
    const bool equal = has_shares(operation_.kind);
    const size_t begin = equal ? elements / p * b : cut(elements, b, p);
    const size_t end = equal ? elements / p * (b + 1) : cut(elements, b + 1, p);
    const unsigned after = (b + 1) % p;
    switch (operation_.kind) {
      case OpKind::kReduceScatter:
        blocks.push_back({begin, end, after, p, b, 1});
        break;
      case OpKind::kAllGather:
        blocks.push_back({begin, end, b, 1, 0, p});
        break;
      default:
        blocks.push_back({begin, end, after, p, 0, p});
    }
  }
  return blocks;
}

// Block i of each rank, or what has become of it.
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

// rings:G: blocks of shares.
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

// decode(encode())
void SimReference::round(const Codec& codec, std::span<const float> in, std::span<float> out) {
  const EncodeResult encoded = codec.encode(in, block_);
  require(encoded.floats == in.size());
  require(codec.decode({block_.data(), encoded.bytes}, out) == Status::kOk);
}

// Encodes local(0), adds local(1) and so on in hops, and decodes that.
template <class Local>
void SimReference::hops(unsigned shares, std::span<float> out, Local&& local) {
  const EncodeResult start = codec_.encode(local(0), block_);
  require(start.floats == out.size());
  size_t bytes = start.bytes;
  for (unsigned i = 1; i < shares; ++i) {
    const HopResult hop = codec_.hop({block_.data(), bytes}, local(i), next_);
    require(hop.status == Status::kOk && hop.floats == out.size());
    bytes = hop.bytes;
    block_.swap(next_);
  }
  require(codec_.decode({block_.data(), bytes}, out) == Status::kOk);
}

// ---- Ways

void SimReference::sum(const SimPiece& piece, size_t first, std::span<float> out) {
  round(codec_, input(piece, 0, first, out.size()), out);
  for (unsigned i = 1; i < piece.shares; ++i) {
    const EncodeResult encoded = codec_.encode(input(piece, i, first, out.size()), block_);
    require(encoded.floats == out.size());
    require(codec_.decode_add({block_.data(), encoded.bytes}, out) == Status::kOk);
  }
  round(back_, out, out);
}

void SimReference::across_groups(const SimPiece& piece, size_t first, std::span<float> out) {
  const unsigned members = piece.shares;
  const unsigned groups = ranks_ / members;
  const auto of_group = [&](unsigned g) { return std::span(groups_).subspan(g * SimInputs::kMaxRun, out.size()); };
  for (unsigned g = 0; g < groups; ++g) {
    hops(members, of_group(g),
         [&](unsigned i) { return inputs_.values(g * members + (piece.first + i) % members, first, out.size()); });
  }
  hops(groups, out, [&](unsigned i) { return of_group((piece.group + 1 + i) % groups); });
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
  } else if (strategy_.kind == Kind::kRings) {
    across_groups(piece, first, out);
  } else if (strategy_.kind != Kind::kRing && reduces(operation_.kind)) {
    sum(piece, first, out);
  } else {
    hops(piece.shares, out, [&](unsigned i) { return input(piece, i, first, count); });
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
