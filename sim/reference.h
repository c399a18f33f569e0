// reference.h - what must come out of an operation, from its definition and the codec alone
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "collectives/operation.h"
#include "sim/tensors.h"

namespace gradlane {

// Elements that take the same way: who puts something in, in which order, and who has the result in the end.
struct SimPiece {
  size_t begin = 0;
  size_t end = 0;
  unsigned first = 0;    // rank whose contribution is the first one; the others follow it, modulo the world
  unsigned shares = 1;   // contributions
  unsigned holder = 0;   // first of those who have the result
  unsigned holders = 1;  // how many follow one another
  unsigned group = 0;    // rings:G: the ring of groups begins behind this one, and `first` is a member of the group
  size_t source = 0;     // all-to-all: what comes to `begin` begins here where it comes from
  unsigned owner = 0;    // of a sum: who makes a result of it
  bool plain = false;    // the one contribution, as it is
};

// An operation on fp32, in terms of five primitives: encode, decode, merge, send, receive. Written anew beside the
// exchange, whose code it shares nothing with but the codecs.
//
// ring        The first rank encodes; each one after it decodes, adds and encodes (a hop). Everybody decodes that.
// direct      Contributions are decode(encode(x)), all of them. They are added as fp32, the first one as it is, and the
//             result is decode(encode(sum)).
// aggregator  The same, with one block for the whole tensor, and the sum encoded by the codec of the way back.
// rings:G     Share i of the tensor goes round the ring of each group as a block of `ring` does, and ends with member
//             i. Block j of the share goes round the members i of all groups in the same way, with what has become of
//             it in each group for a contribution, and ends with group j.
//
// A codec that must know contributions first is shown all of each, and settled; `count` of the operation says how much
// that is. Where a codec says so, results are made of sums of all contributions, and what is no contribution is
// represented, not encoded; rings:G adds it by decoding then.
//
// Minima and maxima are exact, whatever the way. What is delivered, by gather, scatter and all-to-all, is as it was,
// but for blocks of an all-to-all from other ranks, which are decode(encode()) of what they were.
class SimReference {
 public:
  // The operation's own codec, if it names one, is not looked at.
  SimReference(const Operation& operation, const Codec& codec, const SimInputs& inputs, unsigned ranks,
               const SimRun& run = {});

  // A tensor of so many elements, piece by piece.
  [[nodiscard]] std::vector<SimPiece> pieces(size_t elements) const;
  // What its elements first, first + 1, ... become, at most SimInputs::kMaxRun of them; valid until the next call.
  // States are those after it, so each element is for one call.
  [[nodiscard]] std::span<const float> run(const SimPiece& piece, size_t first, size_t count);

 private:
  [[nodiscard]] std::vector<SimPiece> blocks(size_t elements) const;
  [[nodiscard]] std::vector<SimPiece> shares(size_t elements) const;
  [[nodiscard]] std::vector<SimPiece> deliveries(size_t elements) const;
  [[nodiscard]] std::span<const float> input(const SimPiece& piece, unsigned share, size_t first, size_t count) const;

  void settle();
  [[nodiscard]] EncodeJob contribution(unsigned rank, size_t first, std::span<const float> in, bool contributes);
  void round(const Codec& codec, std::span<const float> in, std::span<float> out);
  template <class Local>
  void hops(unsigned shares, std::span<float> out, Local&& local);
  void result(unsigned owner, size_t first, std::span<float> out);
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
  size_t elements_ = 0;        // in a state array
  std::vector<Codec> codecs_;  // by rank, settled
  std::vector<uint8_t> block_;
  std::vector<uint8_t> next_;
  std::vector<float> result_;
  std::vector<float> groups_;  // rings:G: of each group, what has become of the run in it
};

}  // namespace gradlane
