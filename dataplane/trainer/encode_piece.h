// encode_piece.h - encoding of contributions for later operations, in pieces between polls (worker thread only)
#pragma once

#include "dataplane/trainer/trainer_job.h"

namespace gradlane {

// Encodes one poll's piece of the job's tensor. Returns true after the last piece. If the table of the encoded tensor
// is malformed, sets the job's failure and returns true, too. `rank`: the trainer.
[[nodiscard]] bool encode_piece(TrainerJob& job, unsigned rank) noexcept;

}  // namespace gradlane
