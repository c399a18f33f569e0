// trainer_job.h - an operation of one rank's trainers on one lane, from their submissions to their completions
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/time.h"
#include "collectives/operation.h"
#include "dataplane/trainer/failure_cause.h"
#include "dataplane/trainer/scan_barrier.h"
#include "dataplane/trainer/share.h"
#include "dataplane/trainer/trainer_rings.h"

namespace gradlane {

struct TrainerOpsSetup {
  unsigned lane = 0;
  unsigned lanes = 1;
  unsigned trainers = 1;       // number of trainers; if more than one, they reduce locally
  unsigned first_trainer = 0;  // local number of the first trainer, as in Command::trainer
  unsigned first_rank = 0;     // rank of the first trainer, among all trainers
  unsigned node = 0;  // with local reduction: this node's position in the ring, to find out whether a root is here
  Nanos operation_timeout = 60 * kSecond;  // time that trainers of this node wait for one another
  SubmissionLimits limits;
  ScanBarrier* looks = nullptr;  // counters shared by all lanes of this rank; null: there is one lane
};

// One operation, made of one submission from each trainer; TrainerOps explains its states.
struct TrainerJob {
  // One trainer's submission.
  struct Part {
    bool submitted = false;
    uint64_t cookie = 0;
    unsigned segment = GL_MAX_SEGMENTS;
    unsigned residual_segment = GL_MAX_SEGMENTS;
    unsigned runs_segment = GL_MAX_SEGMENTS;
    uint8_t* runs = nullptr;  // as in Submission
    Operation operation;      // as submitted: the whole tensor
    bool encodes = false;     // as in Submission
    uint32_t ends = 0;        // value of the trainer's Ends::count when it submitted this

    [[nodiscard]] bool uses(unsigned number) const noexcept {
      return segment == number || residual_segment == number || runs_segment == number;
    }
  };
  enum class State : uint8_t { kFree, kGathering, kSumming, kSummed, kReady, kExchanging, kCopying };
  State state = State::kFree;
  std::vector<Part> parts;  // one part per trainer
  unsigned arrived = 0;
  unsigned buffer = 0;      // the trainer whose tensor the exchange works on
  bool alone = false;       // no other node exists and nothing is rounded: the exchange only counts the operation
  Share share;              // this lane's share of the tensor, or of each rank's block
  uint64_t id = 0;          // operation id of the exchange
  uint32_t generation = 0;  // generation of the ring in which it is exchanged
  bool cancelled = false;
  unsigned cancelled_by = 0;  // trainer that cancelled it
  Nanos begun_at = 0;
  Nanos gathered_at = 0;
  unsigned last = 0;     // trainer that submitted it last
  Nanos timeout = 0;     // shortest timeout that a trainer has named; 0: none has
  Nanos deadline = 0;    // latest time for all trainers to submit it
  FailureCause failure;  // cause, if the job is going to fail on all ranks; else empty
  // `looks` is the job's entry of the barrier; null unless the codec scans the whole tensor. `summed`: this lane has
  // counted its sum in that entry. `given`: the exchange has the job, and will count the lane's scan there.
  ScanBarrier::Entry* looks = nullptr;
  bool summed = false;
  bool given = false;
  size_t done = 0;  // summing, copying and encoding: elements done so far, counted over all blocks concerned
  Completion completion;
};

}  // namespace gradlane
