// trainer_job.h - an operation of one rank's trainers on one lane, from their submissions to their completions
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/time.h"
#include "collectives/operation.h"
#include "dataplane/trainer/failure_cause.h"
#include "dataplane/trainer/lane_looks.h"
#include "dataplane/trainer/share.h"
#include "dataplane/trainer/trainer_rings.h"

namespace gradlane {

struct TrainerOpsSetup {
  unsigned lane = 0;
  unsigned lanes = 1;
  unsigned trainers = 1;                   // more than one: they reduce locally
  unsigned first_trainer = 0;              // local number; their commands carry it
  unsigned first_rank = 0;                 // of that trainer, among all trainers
  unsigned node = 0;                       // with local reduction: this rank's place in the ring, for roots
  Nanos operation_timeout = 60 * kSecond;  // how long trainers of this node wait for one another
  SubmissionLimits limits;
  LaneLooks* looks = nullptr;  // of all lanes of this rank; null: there is one lane
};

// One operation, made of one submission from each trainer; TrainerOps explains its states.
struct TrainerJob {
  // Of one trainer.
  struct Part {
    bool submitted = false;
    uint64_t cookie = 0;
    unsigned segment = GL_MAX_SEGMENTS;
    unsigned residual_segment = GL_MAX_SEGMENTS;
    Operation operation;  // as submitted: the whole tensor
    uint32_t ends = 0;    // of generations, when it was submitted
  };
  enum class State : uint8_t { kFree, kGathering, kSumming, kSummed, kReady, kExchanging, kCopying };
  State state = State::kFree;
  std::vector<Part> parts;  // by trainer
  unsigned arrived = 0;
  unsigned buffer = 0;      // the trainer whose tensor the exchange works on
  bool alone = false;       // there is no other node, and nothing is rounded: the exchange only counts it
  Share share;              // of the tensor, or of each rank's block, this lane's
  uint64_t id = 0;          // the exchange's
  uint32_t generation = 0;  // in which it is exchanged
  bool cancelled = false;
  unsigned cancelled_by = 0;  // trainer
  Nanos begun_at = 0;
  Nanos gathered_at = 0;
  unsigned last = 0;     // the trainer that was the last one to submit it
  Nanos timeout = 0;     // the shortest that a trainer has named; 0: none has
  Nanos deadline = 0;    // for all trainers to have submitted it
  FailureCause failure;  // not empty: it will fail on all ranks, and this is why
  // Null unless the codec scans the whole tensor. `summed`: this lane has reported its sum there; `given`: the exchange
  // will report the scan.
  LaneLooks::Entry* looks = nullptr;
  bool summed = false;
  bool given = false;
  size_t done = 0;  // summing and copying: so many elements of the share, of all blocks that are concerned
  Completion completion;
};

}  // namespace gradlane
