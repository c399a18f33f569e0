// encode_piece.h - encoding of contributions for later operations, in pieces between polls (worker thread only)
#pragma once

#include "dataplane/trainer/trainer_job.h"

namespace gradlane {

// Encodes one poll's piece of the job's tensor. Returns whether it was the last piece, or sets the job's failure if the
// table of the encoded tensor is malformed. `rank`: the trainer.
[[nodiscard]] bool encode_piece(TrainerJob& job, unsigned rank) noexcept;

}  // namespace gradlane
