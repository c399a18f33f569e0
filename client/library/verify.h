// verify.h - verified sums: checksums of the contributions, and their comparison with the result (the thread of the
// context)
#pragma once

#include "client/library/checksum.h"
#include "client/library/context.h"

// The check of one operation. An all-reduce of `checksums` follows the operation, and adds those of all ranks.
struct gl_check {
  struct gl_request* checked;    // the operation; NULL: it has ended
  struct gl_request* reduction;  // the all-reduce; NULL: it has ended
  bool awaited;                  // the operation has succeeded, and waits for the all-reduce
  struct gl_lattice lattice;
  uint64_t each;  // elements of each block except the last, which may be shorter
  uint32_t blocks;
  struct gl_checksum checksums[];
};

// Computes the checksums of this rank's contribution. Returns NULL if there is no memory.
struct gl_check* gl_new_check(const gradlane_context* gl, const struct gl_operation* operation);
// Describes the all-reduce of the checksums.
struct gl_operation gl_describe_check(struct gl_check* check, const struct gl_operation* operation);
// Returns the bytes of a slot's piece of gl_checksum_memory, for the most blocks that a check can have.
size_t gl_check_bytes(const gradlane_context* gl);
// Copies the checksums to the memory of a slot, and returns its offset in the segment.
uint64_t gl_load_checksums(const gradlane_context* gl, const struct gl_check* check, unsigned slot);
// Copies their sums over all ranks back from there.
void gl_unload_checksums(const gradlane_context* gl, struct gl_check* check, unsigned slot);
// Compares the checksums of the result with those sums. If they differ, fails the request.
void gl_compare(gradlane_context* gl, const struct gl_check* check, struct gl_request* request);
