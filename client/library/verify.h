// verify.h - verified sums: proofs of the contributions, and their comparison with the result (the thread of the
// context)
#pragma once

#include "client/library/context.h"
#include "client/library/proof.h"

// The check of one operation. An all-reduce of `proofs` follows the operation, in one piece with it: it adds the proofs
// of all ranks.
struct gl_check {
  struct gl_request* of;  // the operation; NULL: it has ended
  struct gl_request* by;  // the all-reduce; NULL: it has ended
  bool awaited;           // the operation has succeeded, and waits for the all-reduce
  struct gl_lattice lattice;
  uint64_t each;  // elements of each block except the last, which may be shorter
  uint32_t blocks;
  struct gl_proof proofs[];
};

// Computes the proofs of this rank's contribution. Returns NULL if there is no memory.
struct gl_check* gl_new_check(const gradlane_context* gl, const struct gl_operation* operation);
// Describes the all-reduce of the proofs.
struct gl_operation gl_check_operation_of(struct gl_check* check, const struct gl_operation* operation);
// Returns the bytes of a slot's place in gl_proofs, for the most blocks that a check can have.
size_t gl_place_bytes(const gradlane_context* gl);
// Copies the proofs to the place of a slot, and returns its offset in the segment; copies their sums back from there.
uint64_t gl_load_proofs(const gradlane_context* gl, const struct gl_check* check, unsigned slot);
void gl_unload_proofs(const gradlane_context* gl, struct gl_check* check, unsigned slot);
// Compares the result with the sums of all proofs. If they differ, fails the request.
void gl_compare(gradlane_context* gl, const struct gl_check* check, struct gl_request* request);
