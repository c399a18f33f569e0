// verify.c - verified sums (the thread of the context)
#include "client/library/verify.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/library/loss.h"

enum { kBlocks = 64, kLeastBlock = 1024, kWords = sizeof(struct gl_checksum) / sizeof(uint64_t) };

// Returns the elements of a block in this rank's contribution.
static const float* block_of(const struct gl_operation* operation, const struct gl_check* check, uint32_t block) {
  if (operation->rows != NULL) return operation->rows[block];
  return (const float*)(const void*)operation->data.base + block * check->each;
}

static uint64_t length_of(const struct gl_operation* operation, const struct gl_check* check, uint32_t block) {
  const uint64_t count = operation->submission.count;
  if (operation->blocks) return count;
  const uint64_t left = count - block * check->each;
  return left < check->each ? left : check->each;
}

struct gl_check* gl_new_check(const gradlane_context* gl, const struct gl_operation* operation) {
  const uint64_t count = operation->submission.count;
  uint64_t each = count;
  uint32_t blocks = gl->welcome.world;
  if (!operation->blocks) {
    each = (count + kBlocks - 1) / kBlocks;
    if (each < kLeastBlock) each = kLeastBlock;
    blocks = (uint32_t)((count + each - 1) / each);
  }
  struct gl_check* const it = malloc(sizeof(*it) + blocks * sizeof(it->checksums[0]));
  if (it == NULL) return NULL;
  const bool average = (operation->submission.flags & GL_FLAG_AVERAGE) != 0;
  it->checked = it->reduction = NULL;
  it->awaited = false;
  it->lattice = (struct gl_lattice){.steps_per_one = operation->steps_per_one,
                                    .ranks = gl->welcome.world,
                                    .divisor = average ? gl->welcome.world : 1};
  it->each = each;
  it->blocks = blocks;
  const bool owes = (operation->submission.flags & GL_FLAG_RESIDUAL) != 0;
  const float* const residual = owes ? (const float*)(const void*)operation->residual.base : NULL;
  for (uint32_t block = 0; block < blocks; ++block) {
    it->checksums[block] =
        gl_checksum_of_contribution(&it->lattice, block_of(operation, it, block),
                                    residual != NULL ? residual + block * each : NULL, length_of(operation, it, block));
  }
  return it;
}

struct gl_operation gl_describe_check(struct gl_check* check, const struct gl_operation* operation) {
  const uint64_t count = (uint64_t)check->blocks * kWords;
  return (struct gl_operation){// A tag that callers are unlikely to choose.
                               .submission = {.tag = operation->submission.tag ^ UINT64_C(0x9e3779b97f4a7c15),
                                              .count = count,
                                              .timeout_ms = operation->submission.timeout_ms,
                                              .kind = GL_ALL_REDUCE,
                                              .type = GRADLANE_INT64},
                               .data = {.base = (uint8_t*)check->checksums, .bytes = count * sizeof(uint64_t)},
                               .each = count,
                               .parts = 1,
                               .whole = count,
                               .width = sizeof(uint64_t)};
}

size_t gl_check_bytes(const gradlane_context* gl) {
  const uint32_t world = gl->welcome.world;
  return (world > kBlocks ? world : kBlocks) * sizeof(struct gl_checksum);
}

uint64_t gl_load_checksums(const gradlane_context* gl, const struct gl_check* check, unsigned slot) {
  const size_t place = slot * gl_check_bytes(gl);
  memcpy(gl->checksums.base + place, check->checksums, check->blocks * sizeof(check->checksums[0]));
  return gl->checksums.offset + place;
}

void gl_unload_checksums(const gradlane_context* gl, struct gl_check* check, unsigned slot) {
  memcpy(check->checksums, gl->checksums.base + slot * gl_check_bytes(gl), check->blocks * sizeof(check->checksums[0]));
}

// Fails the request, because a block of its result is not the sum. `off` is how far the result's checksums are off.
static void fail(const gradlane_context* gl, const struct gl_check* check, struct gl_request* request, uint32_t block,
                 const struct gl_checksum* off) {
  const uint64_t first = block * check->each;
  const uint64_t count = length_of(&request->operation, check, block);
  // A single error is of fewer than 2^24 steps.
  const bool few =
      off->unfit == 0 && off->sum + (1 << 24) < 1 << 25 && off->places + (INT64_C(1) << 60) < INT64_C(1) << 61;
  const int64_t steps = few ? (int64_t)off->sum : 0;
  const int64_t places = few ? (int64_t)off->places : 0;
  char what[160];
  // If one element is wrong, the sums tell which, and by how much.
  if (steps != 0 && places % steps == 0 && places / steps >= 0 && (uint64_t)(places / steps) < count) {
    (void)snprintf(what, sizeof(what), "if it is one, element %" PRIu64 " by %" PRId64 " times %g",
                   first + (uint64_t)(places / steps), steps,
                   1.0 / (double)check->lattice.steps_per_one / check->lattice.divisor);
  } else {
    (void)snprintf(what, sizeof(what), "%s",
                   off->unfit != 0 ? "some are values that no such sum can have" : "several of them");
  }
  request->code = GRADLANE_FAILED;
  request->cause = GRADLANE_CAUSE_WRONG;
  (void)snprintf(
      request->text, sizeof(request->text),
      "the result on rank %u is wrong: elements %" PRIu64 " to %" PRIu64
      " are not the sum of the contributions (%s); check memory and network cards, and that no program writes to "
      "a tensor during its operation",
      gl->welcome.rank, first, first + count - 1, what);
}

void gl_compare(gradlane_context* gl, const struct gl_check* check, struct gl_request* request) {
  const struct gl_operation* const operation = &request->operation;
  const bool scattered = operation->blocks;
  for (uint32_t block = 0; block < check->blocks; ++block) {
    if (scattered && block != gl->welcome.rank) continue;
    const struct gl_checksum* const sum = &check->checksums[block];
    if (sum->unfit != 0) {
      ++gl->unverified_blocks;
      gl_warn(
          gl, GL_WARN_UNVERIFIED,
          "some sums are not verified, because a rank has values that are not finite, or too large for their codec: "
          "see unverified_blocks, and docs/determinism.md");
      continue;
    }
    const float* data = block_of(operation, check, block);
    if (scattered && operation->rows != NULL) data = (const float*)(const void*)operation->data.base;
    const struct gl_checksum found = gl_checksum_of_result(&check->lattice, data, length_of(operation, check, block));
    const struct gl_checksum off = {
        .sum = found.sum - sum->sum, .places = found.places - sum->places, .unfit = found.unfit};
    if ((off.sum | off.places | off.unfit) != 0) {
      fail(gl, check, request, block, &off);
      return;
    }
    ++gl->verified_blocks;
  }
}
