// operation.h - an operation that a caller submits to the exchange, and its completion
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/time.h"
#include "collectives/failure.h"
#include "collectives/op_kind.h"
#include "collectives/strategy/strategy_id.h"
#include "compress/codec.h"
#include "compress/loss.h"

namespace gradlane {

// A contribution to an all-reduce of floats, encoded before it (compress/encoded_tensor.h). The trainer can change the
// bytes at any time.
struct EncodedContribution {
  std::span<uint8_t> bytes;
  size_t first = 0;            // position of the operation's first element in the encoded tensor
  size_t floats = 0;           // of the encoded tensor; 0: the contribution is not encoded
  std::optional<Codec> codec;  // set if it is encoded
};

// A run of a result: one block of `floats` floats of the tensor, from `first` on.
struct ResultRun {
  uint64_t first;
  uint64_t at;  // where the block begins, in bytes; RunArea::at says from where
  uint32_t floats;
  uint32_t bytes;
};

// Memory for the result of an all-reduce of floats as runs, in any order. Blocks grow from the front, and the table of
// runs grows from the end downwards. The trainer reads them after the operation.
struct RunArea {
  // Bytes for each begun group of floats: for its longest block, and for an entry of the table.
  static constexpr size_t kGroupBytes = 160;

  uint8_t* data = nullptr;  // null: the result is floats
  size_t bytes = 0;
  uint64_t at = 0;  // ResultRun::at of data[0]
};

// One collective operation. It works in place, except all-to-all. All ranks must submit the same operations in the same
// order. Elements that go through a codec end as decode(encode(x)) of some x, with the same bytes on every rank.
//
// all-reduce      data: count elements; ends as the sum over the ranks
// reduce-scatter  data: world * count elements; block `rank` ends as the sum of the ranks' blocks `rank`, the content
//                 of the other blocks is undefined then
// all-gather      data: world * count elements, of which block `rank` is this rank's; ends as all ranks' blocks
// broadcast       data: count elements; ends as those of rank `root`
// barrier         no data; ends when all ranks have submitted it
// reduce          data: count elements; ends as the sum on rank `root`, on all others as it was
// gather          data: world * count elements, of which block `rank` is this rank's; ends on rank `root` as all ranks'
//                 blocks, on all others as it was
// scatter         data: world * count elements on rank `root`; block `rank` ends as that one's block `rank`, the others
//                 stay as they were
// all-to-all      data and out: world * count elements each; block i of `out` ends as rank i's block `rank` of `data`,
//                 which stays as it was
//
// A reduce rounds as an all-reduce does, and adds in the order root+1, root+2, ..., root. Gather and scatter deliver
// elements without a codec. An all-to-all does so too, unless it names a codec. Then all blocks but a rank's own end as
// decode(encode()) of them.
//
// Sums: fp32 as the codec adds, other floating types in their own precision (fp16 and bf16 rounded in every hop),
// integers modulo 2^n, bytes modulo 256. Block b of an all-reduce is added in the order b+1, b+2, ..., b (mod world).
struct Operation {
  OpKind kind = OpKind::kAllReduce;
  ElementType type = ElementType::kFloat32;
  Reduction reduction = Reduction::kSum;
  unsigned root = 0;  // for kinds with has_root()
  // The operation fails with kMismatch if the tag is not the same on all ranks. It may hold a step and bucket number,
  // for example. Then ranks that lost count of each other after a failure never add data that does not belong together.
  uint64_t tag = 0;
  size_t count = 0;  // elements
  // Must stay valid until the completion, and nobody else may touch it. Any alignment is allowed.
  void* data = nullptr;
  // This rank's contribution, if it is encoded. Then the content of `data` does not count. It is for sums and averages
  // by all-reduce, without residual.
  EncodedContribution encoded{};
  // Where the result goes, if it is to be encoded runs. They have sums, even if the operation averages. The content of
  // `data` is then undefined. It is for sums and averages by all-reduce, by any strategy but an aggregator, with codecs
  // that encodes_tensors() allows and that do not round once.
  RunArea runs{};
  // Output of an all-to-all, which must not overlap `data`. Null for all other kinds.
  void* out = nullptr;
  // Residuals for error feedback (codecs that have it; all-reduce, reduce-scatter and reduce): as many floats as
  // `data`. They are added to `data`, and end as the rounding error of this rank's contribution. A failed operation
  // sets them to zero, and its completion says so. But they stay unchanged if it failed before it was ready to send:
  // while it waited for the ring, scanned the tensor or agreed with other ranks. An operation that is cancelled while
  // it waits for the ring fails when it starts, so it may zero them. A codec with two states() has a second array of
  // this length after this one (`state_pitch`).
  float* residual = nullptr;
  // Number of floats from the start of one state array to the start of the next. 0: as many as `data` has.
  size_t state_pitch = 0;
  // Codec for fp32 elements. The default is the exchange's configured codec, or raw for an all-to-all. A codec for
  // which selects() is true serves sums only: other kinds send the elements uncompressed.
  std::optional<Codec> codec;
  // The default is the first strategy of the configuration. If that one cannot do this operation, the ring is used. If
  // the ring cannot either, the first strategy of the configuration that can is used.
  std::optional<StrategyId> strategy{};
  // Codec of an aggregator's results (fp32), as they are sent back to the ranks. The default is raw, because a
  // parameter server sends back weights, which are not compressed.
  std::optional<Codec> back_codec{};
  // Time limit from submission to failure. 0: start_timeout until it starts, then operation_timeout. It may differ
  // between ranks: the first rank that runs out of time fails the operation on all ranks.
  Nanos timeout = 0;

  // For traces: times at which the first and the last trainer of this rank submitted it. 0: unknown.
  Nanos asked = 0;
  Nanos gathered = 0;
  std::optional<uint16_t> last_rank{};  // trainer that submitted it last; none if the rank has one trainer

  // ---- For a tensor that is divided among several exchanges. 0 or null if it is not divided.
  // Elements of the whole tensor. All ranks must derive `count` from this number in the same way. Ranks compare it
  // instead of `count`.
  size_t whole = 0;
  // Elements of the whole tensor before the first one of `data`. Codecs that scan a tensor before they encode it
  // (Codec::scan()) scan the whole tensor, in each of these exchanges. Random numbers depend on an element's position
  // in the whole tensor. If has_shares(), `whole` and `offset` count within one rank's block, and positions count over
  // all blocks with the pitch below.
  size_t offset = 0;
  // Number of these exchanges that have not finished scanning the whole tensor. It starts at the number of exchanges.
  // Until it is 0, no exchange changes the tensor or its states, not even if the operation fails. Null: no other
  // exchange scans the tensor.
  std::atomic<uint32_t>* scans_left = nullptr;
  // Elements from the start of one rank's block to the start of the next, if has_shares(). It is at least `count`, or
  // 0, which means `count`.
  size_t pitch = 0;
};

// Codecs scan a tensor in slices of this many elements, from the start of each rank's block on. Sums over the tensor
// are sums over these slices.
inline constexpr size_t kScanSlice = 32768;

struct Completion {
  uint64_t id = 0;  // id that submit() returned
  Failure failure;  // none: success
  // residual was set to zeros; false if the operation succeeded, failed before it was ready to send, or has no residual
  bool residual_cleared = false;
  Loss loss;  // loss of a sample of this rank's contribution: sample_loss()
  // Bytes of the runs with elements that this rank sent, without packet headers, retransmissions and control runs.
  uint64_t sent_bytes = 0;
  // Operation::runs: number of runs, and bytes of their blocks.
  size_t runs = 0;
  size_t run_bytes = 0;
};

}  // namespace gradlane
