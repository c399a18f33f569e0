// reference.h - the expected results of an operation, computed from its definition and the codec alone
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collectives/operation.h"
#include "sim/tensors.h"

namespace gradlane {

// Elements that are treated alike: the same ranks contribute to them in the same order, and the same ranks have the
// result.
struct SimPiece {
  size_t begin = 0;
  size_t end = 0;
  unsigned first = 0;    // rank of the first contribution; the other ranks follow it, modulo the world
  unsigned shares = 1;   // number of contributions
  unsigned holder = 0;   // first rank that has the result
  unsigned holders = 1;  // number of consecutive ranks that have it
  // rings:G only. Index of the group where the piece ends; the ring across groups begins with the next group. `first`
  // is then the index of a member within its group.
  unsigned group = 0;
  size_t source = 0;   // gather, scatter, all-to-all: element of the sender's tensor that goes to `begin`
  unsigned owner = 0;  // sums: rank that turns the sum into a result
  bool plain = false;  // the only contribution is the result, unchanged
};

// Computes an operation on fp32 in terms of five primitives (HiPress): encode, decode, merge, send, receive. It is
// written independently of the exchange. It shares only the codecs, the definition of operations and the seeds with it.
//
// - ring: The first rank encodes its contribution. Each rank after it decodes, adds its own contribution and encodes (a
//   hop). All ranks decode the block of the last one.
// - direct: Every contribution x is rounded to decode(encode(x)). The rounded contributions are added as fp32, and the
//   result is decode(encode(sum)).
// - aggregator: It does the same as direct, with one block for the whole tensor. The sum is encoded by back_codec.
// - rings:G: Share i of the tensor circulates in the ring of each group, like a block of `ring`, and ends at member i.
//   Block j of that share then circulates like this among members i of all groups, and ends at group j. The
//   contribution of each group is its result of the first ring.
//
// Properties of the codec (compress/codec.h) change this:
//
// - passes() > 0: A rank scans its whole contribution before it encodes any of it. Operation::count says how long that
//   is.
// - finishes(), or not additive: finish() turns the sum of all contributions into the result, which is then encoded by
//   encode_sum() and decoded.
// - selects(): Sums are encoded by encode_sum(). With rings:G, the sums of groups are then not added in hops: each is
//   encoded by encode_sum(), decoded, and added to the next.
//
// Minima and maxima are exact with every strategy. Gather, scatter and all-to-all deliver elements unchanged, with one
// exception: blocks of an all-to-all from other ranks end as decode(encode()) of them.
class SimReference {
 public:
  // Ignores the codec that `operation` may name: `codec` is used.
  SimReference(const Operation& operation, const Codec& codec, const SimInputs& inputs, unsigned ranks,
               const SimRun& run = {});

  // Returns the pieces of a tensor of `elements` elements.
  [[nodiscard]] std::vector<SimPiece> pieces(size_t elements) const;
  // Returns the results of elements first, first + 1, ... of a piece. `count` is at most SimInputs::kMaxRun. The span
  // is valid until the next call. Call it exactly one time for each element, because it also updates the states.
  [[nodiscard]] std::span<const float> run(const SimPiece& piece, size_t first, size_t count);

 private:
  [[nodiscard]] std::vector<SimPiece> blocks(size_t elements) const;
  [[nodiscard]] std::vector<SimPiece> shares(size_t elements) const;
  [[nodiscard]] std::vector<SimPiece> deliveries(size_t elements) const;
  [[nodiscard]] std::span<const float> input(const SimPiece& piece, unsigned share, size_t first, size_t count) const;

  void finish_scan();
  [[nodiscard]] EncodeJob contribution(unsigned rank, size_t first, std::span<const float> in, bool contributes);
  void round(const Codec& codec, std::span<const float> in, std::span<float> out);
  template <class Local>
  void hops(unsigned shares, std::span<float> out, Local&& local);
  void result(unsigned owner, size_t first, std::span<float> out);
  void sum_once(const SimPiece& piece, size_t first, std::span<float> out);
  void sum(const SimPiece& piece, size_t first, std::span<float> out);
  void ring(const SimPiece& piece, size_t first, std::span<float> out);
  void sums_of_groups(const SimPiece& piece, std::span<float> out);
  void across_groups(const SimPiece& piece, size_t first, std::span<float> out);
  void pick(size_t first, std::span<float> out) const;

  Operation operation_;
  StrategyId strategy_;
  Codec codec_;
  Codec back_;
  const SimInputs& inputs_;
  unsigned ranks_;
  SimRun run_;
  size_t elements_ = 0;        // length of a state array
  std::vector<Codec> codecs_;  // one per rank, after finish_scan()
  std::vector<uint8_t> block_;
  std::vector<uint8_t> next_;
  std::vector<float> result_;
  std::vector<float> groups_;  // rings:G: by group, its members' sum of the elements in run()
};

}  // namespace gradlane
