// encoded_piece.h - encoding and decoding of contributions before their operations, in pieces between polls (worker
// thread only)
#pragma once

#include "dataplane/trainer/trainer_job.h"

namespace gradlane {

// Does one poll's piece of this lane's share: encodes floats of the job's tensor, or decodes a contribution into it.
// Returns whether it was the last piece, or sets the job's failure if the encoded tensor is malformed. `rank`: the
// trainer.
[[nodiscard]] bool code_piece(TrainerJob& job, unsigned rank) noexcept;

}  // namespace gradlane
