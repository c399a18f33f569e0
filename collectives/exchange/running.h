// running.h - one operation on one rank, and the memory that grows with its tensor (lane's thread)
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "collectives/descriptor.h"
#include "collectives/exchange/blocks.h"
#include "collectives/exchange/coder.h"
#include "collectives/exchange/deferred.h"
#include "collectives/exchange/outbox.h"
#include "collectives/exchange/turns.h"
#include "collectives/operation.h"
#include "collectives/strategy/strategy.h"

namespace gradlane {

// The memory of an operation that grows with its tensor.
struct Room {
  // For tensors of so many granules; `relayed`: of which so many may be results of others that go on from here;
  // `owners`: ranks, where blocks may have owners; else 0.
  Room(size_t granules, size_t relayed, unsigned owners, bool small)
      : partial(granules),
        result(granules),
        digests(std::make_unique_for_overwrite<uint32_t[]>(relayed)),
        turns(owners, small) {}

  Deferred partial;  // partial sums in the tensor
  Deferred result;   // results in the tensor
  // CRC32C of granules of the tensor: of results that other ranks will get from there. Not initialized, so that pages
  // are taken only for results that do wait.
  std::unique_ptr<uint32_t[]> digests;
  Turns turns;  // contributions to the block that is this rank's
  bool taken = false;
};

// One operation, from submit() until its completion has been read and all ranks have been told what they must know.
struct Running {
  enum class State : uint8_t {
    kFree,
    kWaiting,  // for the ring, or for its turn
    kRunning,
    kOver,
  };

  // `owners`: ranks, where blocks may have owners; else 0.
  Running(const Codec& codec, Room* small, unsigned owners)
      : room(small),
        coder(ElementType::kFloat32, codec),
        back(coder),
        sent(owners),
        limit(owners),
        due(owners),
        look(std::make_unique<Look>()) {}

  Room* room;  // while it is free: any
  State state = State::kFree;
  bool unread = false;  // its completion is
  uint64_t id = 0;
  uint32_t number = 0;  // on the wire; counts from 0 in each generation
  Operation operation;
  Descriptor descriptor{};
  uint32_t digest = 0;
  Coder coder;
  const Strategy* strategy = nullptr;
  Task task;
  unsigned world = 1;
  Nanos submitted_at = 0;
  Nanos deadline = 0;
  Nanos tell_at = kNever;  // then all neighbours that have not started it hear that this rank has
  Failure failure;
  bool residual_cleared = false;
  Loss loss;
  uint64_t sent_bytes = 0;  // Completion::sent_bytes so far
  int32_t token = 0;        // what a barrier sums up

  // ---- Before its first element: beginnings.cc.
  bool ready = true;         // for elements; until then neighbours send none, as they hear of no stage
  bool counted = true;       // in Operation::lookers
  unsigned lead = 0;         // 1: the codec looks first, and stages are announced by numbers from 1
  std::optional<float> bid;  // what this rank offers
  LinkSet takers;            // neighbours that must hear when it is ready

  // ---- Of the present stage: how the tensor, or the part of it from element `base` on, is divided,
  Blocks blocks;
  size_t base = 0;
  size_t from = 0;  //   and in a ring the link by which runs come.

  // What is still to come, and to be sent.
  size_t sums_left = 0;                            // elements of Phase::kReduce to receive
  size_t results_left = 0;                         // of Phase::kGather
  std::array<size_t, Outbox::kChannels> coming{};  // its part of ExchangeState::coming_
  unsigned own_block = 0;                          // own elements are sent block by block,
  size_t own_sent = 0;                             //   of this one these many so far
  size_t others_sent = 0;                          // the same of other ranks, about
  size_t offer = 0;                                // elements to offer the coder: about as many as a packet takes
  LinkSet announce;                                // neighbours that must hear that it has started
  LinkSet spread;                                  // neighbours that must hear that it has failed,
  uint8_t origin = 0;                              //   on this rank

  // ---- Where blocks have owners.
  Coder back;                 // of results
  unsigned own = 0;           // that block; as many as there are blocks: none
  size_t queued = 0;          // its results that are on their way to all
  size_t window = 1;          // elements that one rank may send ahead of its turn; runs do not cross its multiples
  size_t to_send = 0;         // elements of this rank, to others
  std::vector<size_t> sent;   // by block: elements sent to its owner,
  std::vector<size_t> limit;  //   who takes them up to here
  unsigned next_owner = 0;    // who is sent to next

  // ---- Where blocks are delivered; `sent` and `next_owner` hold for them too.
  std::vector<size_t> due;  // by rank: elements still to come from there

  std::unique_ptr<Look> look;
};

}  // namespace gradlane
