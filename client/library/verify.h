// verify.h - verified sums: proofs of the contributions, and their comparison with the result (the thread of the
// context)
#pragma once

#include "client/library/context.h"
#include "client/library/proof.h"

// The check of one operation. An all-reduce of `proofs` follows the operation, in one piece with it: it adds the proofs
// of all ranks.
struct gl_check {
  struct gl_request* of;  // the operation; NULL: it has ended
  bool over;              // the all-reduce has ended
  bool awaited;           // the operation has succeeded, and waits for that
  struct gl_lattice lattice;
  uint64_t each;  // elements of each block except the last, which may be shorter
  uint32_t blocks;
  struct gl_proof proofs[];
};

// Computes the proofs of this rank's contribution. Returns NULL if there is no memory.
struct gl_check* gl_new_check(const gradlane_context* gl, const struct gl_operation* operation);
// Describes the all-reduce of the proofs.
struct gl_operation gl_check_operation_of(struct gl_check* check, const struct gl_operation* operation);
// Compares the result with the sums of all proofs. If they differ, fails the request.
void gl_compare(gradlane_context* gl, const struct gl_check* check, struct gl_request* request);
