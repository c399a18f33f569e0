// check.c - checks of an operation's arguments, before anything happens (the thread of the context)
#include "client/library/check.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "client/library/buffers.h"
#include "client/library/codecs.h"
#include "client/library/coding.h"
#include "client/library/kinds.h"
#include "client/library/loss.h"
#include "client/library/requests.h"
#include "client/library/strategies.h"

static const char* const kReductions[] = {"sum", "minimum", "maximum"};

struct type_row {
  const char* name;
  size_t bytes;
  bool floating;
};

static const struct type_row kTypes[] = {
    [GRADLANE_FLOAT32] = {"float32", 4, true}, [GRADLANE_FLOAT64] = {"float64", 8, true},
    [GRADLANE_FLOAT16] = {"float16", 2, true}, [GRADLANE_BFLOAT16] = {"bfloat16", 2, true},
    [GRADLANE_INT32] = {"int32", 4, false},    [GRADLANE_INT64] = {"int64", 8, false},
    [GRADLANE_BYTES] = {"bytes", 1, false},
};

enum {
  kGranule = 128,                                  // elements; a multiple of the exchange's granules of all types
  kLeastHow = offsetof(gradlane_how, timeout_ms),  // bytes of gradlane_how before version 3
  kLeastPart = 4096,
};

// Computes the bytes of the tensor, and how it is divided into parts (abi.h).
static gradlane_code divide_into_parts(gradlane_context* gl, enum gl_submission_kind kind, size_t count,
                                       const struct type_row* type, size_t part, struct gl_operation* out,
                                       size_t* bytes) {
  const bool local_reduce = (gl->welcome.flags & GL_WELCOME_LOCAL_REDUCE) != 0;
  out->width = (uint32_t)type->bytes;
  out->blocks = gl_has_blocks(kind);
  out->each = count;
  out->parts = 1;
  const size_t row = type->bytes * (out->blocks ? gl->welcome.world : 1);
  if (__builtin_mul_overflow(count, row, bytes)) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "%s: %zu elements of %s%s exceed the address space", gl_kind_name(kind),
                   count, type->name, out->blocks ? " per rank" : "");
  }
  uint64_t most = GL_PART_BYTES;
  while (most > gl->welcome.max_bytes) most /= 2;
  if (part != 0 && part < most) most = part;
  if (*bytes <= most) return GRADLANE_OK;
  // A part would have a slice of every rank's block, and with local_reduce blocks must be contiguous.
  if (out->blocks && out->rows == NULL && local_reduce) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT,
                   "%s: %zu bytes of all ranks; with local_reduce in the daemon's configuration the limit is %" PRIu64
                   ": divide the tensor",
                   gl_kind_name(kind), *bytes, most);
  }
  if (row > most) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT,
                   "%s: an element of %s per rank is %zu bytes, and the daemon's limit is %" PRIu64
                   ": raise its exchange.max_tensor",
                   gl_kind_name(kind), type->name, row, gl->welcome.max_bytes);
  }
  out->each = most / row;
  // Lanes and packets divide tensors at multiples of kGranule elements.
  if (out->each > kGranule) out->each -= out->each % kGranule;
  out->parts = (count - 1) / out->each + 1;
  return GRADLANE_OK;
}

// Finds the segment and the offset of `base`. `what` is "data", "out" or "residual".
static gradlane_code find_segment(gradlane_context* gl, const char* kind, const char* what, void* base, size_t bytes,
                                  uint8_t* segment, uint64_t* offset) {
  *segment = 0;
  *offset = 0;
  if (bytes == 0) return GRADLANE_OK;
  const struct gl_buffer* const buffer = gl_find_buffer(gl, base);
  if (buffer == NULL) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "%s: %s at %p is not in a buffer of gradlane_alloc() of this context",
                   kind, what, base);
  }
  const size_t left = buffer->bytes - (size_t)((uint8_t*)base - buffer->base);
  if (bytes > left) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT,
                   "%s: %s needs %zu bytes, but its buffer has only %zu from that address on", kind, what, bytes, left);
  }
  *segment = (uint8_t)buffer->segment;
  *offset = (uint64_t)((uint8_t*)base - gl->segments[buffer->segment].base);
  return GRADLANE_OK;
}

static gradlane_code check_users(gradlane_context* gl, const char* kind, const char* what, struct gl_range range) {
  const struct gl_request* const user = gl_find_user(gl, range.base, range.bytes);
  if (user == NULL) return GRADLANE_OK;
  return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "%s: %s is in use by request %llu: wait for that request first", kind, what,
                 (unsigned long long)user->number);
}

static gradlane_code find_unused_segment(gradlane_context* gl, const char* kind, const char* what,
                                         struct gl_range range, uint8_t* segment, uint64_t* offset) {
  const gradlane_code code = find_segment(gl, kind, what, range.base, range.bytes, segment, offset);
  return code != GRADLANE_OK ? code : check_users(gl, kind, what, range);
}

static gradlane_code check_average(gradlane_context* gl, enum gl_submission_kind kind, const struct type_row* type) {
  if (!gl_reduces(kind)) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "%s: this operation has no sum to average", gl_kind_name(kind));
  }
  if (!type->floating) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "%s: cannot average %s; only floating types", gl_kind_name(kind),
                   type->name);
  }
  return GRADLANE_OK;
}

static gradlane_code check_reduction(gradlane_context* gl, enum gl_submission_kind kind, const struct type_row* type,
                                     const gradlane_how* how, struct gl_submission* submission) {
  const int reduction = how->reduction;
  if (reduction < GRADLANE_SUM || reduction > GRADLANE_MAX) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT,
                   "%s: there is no reduction %d; allowed: GRADLANE_SUM, GRADLANE_MIN and GRADLANE_MAX",
                   gl_kind_name(kind), reduction);
  }
  if (reduction != GRADLANE_SUM && how->average != 0) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "%s: average and %s cannot be combined; choose one", gl_kind_name(kind),
                   kReductions[reduction]);
  }
  if (reduction != GRADLANE_SUM && !gl_reduces(kind)) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "%s: this operation has no %s, as it does not reduce", gl_kind_name(kind),
                   kReductions[reduction]);
  }
  if (reduction == GRADLANE_MIN) submission->flags |= GL_FLAG_MIN;
  if (reduction == GRADLANE_MAX) submission->flags |= GL_FLAG_MAX;
  if (how->average == 0) return GRADLANE_OK;
  const gradlane_code code = check_average(gl, kind, type);
  if (code == GRADLANE_OK) submission->flags |= GL_FLAG_AVERAGE;
  return code;
}

// Finds the state arrays of a residual, of `bytes` bytes each.
static gradlane_code locate_states(gradlane_context* gl, const char* name, size_t bytes, const gradlane_how* how,
                                   struct gl_operation* out) {
  struct gl_submission* const submission = &out->submission;
  const size_t floats = bytes / sizeof(float);
  const size_t pitch = how->state_pitch != 0 ? how->state_pitch : floats;
  if (pitch < floats || pitch > SIZE_MAX / sizeof(float) / (out->states + 1)) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT,
                   "%s: state_pitch is %zu floats; allowed: at least the %zu of data, and no more than fits in memory",
                   name, pitch, floats);
  }
  out->residual = (struct gl_range){.base = (uint8_t*)how->residual, .bytes = bytes};
  out->state_bytes = pitch * sizeof(float);
  if (out->states > 1) submission->state_pitch = pitch;
  char what[40] = "residual";
  if (out->states > 1) (void)snprintf(what, sizeof(what), "residual, of %u arrays,", out->states);
  const size_t all = bytes == 0 ? 0 : (out->states - 1) * out->state_bytes + bytes;
  gradlane_code code =
      find_segment(gl, name, what, how->residual, all, &submission->residual_segment, &submission->residual_offset);
  for (uint32_t i = 0; i < out->states && code == GRADLANE_OK; ++i) {
    const struct gl_range state = gl_state_of(out, i);
    code = check_users(gl, name, "residual", state);
    const uintptr_t data = (uintptr_t)out->data.base;
    const uintptr_t residual = (uintptr_t)state.base;
    if (code == GRADLANE_OK && residual < data + bytes && data < residual + bytes) {
      code = gl_fail(gl, GRADLANE_BAD_ARGUMENT, "%s: data and residual, of %zu bytes each, overlap", name, bytes);
    }
  }
  return code;
}

static gradlane_code check_residual(gradlane_context* gl, enum gl_submission_kind kind, gradlane_type type,
                                    size_t bytes, const gradlane_how* how, const struct gl_codec_name* codec,
                                    struct gl_operation* out) {
  const char* const name = gl_kind_name(kind);
  struct gl_submission* const submission = &out->submission;
  if (how->residual == NULL) return GRADLANE_OK;
  if (!gl_reduces(kind) || type != GRADLANE_FLOAT32 || how->reduction != GRADLANE_SUM) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT,
                   "%s of %s: a residual is only for sums of float32 by all_reduce, reduce_scatter or reduce", name,
                   kTypes[type].name);
  }
  if (codec->states == 0) {
    const char* const able = gl_codec_with(gl, GL_CODEC_FEEDBACK, codec->name);
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "%s: codec %.63s takes no residual%s%s", name, codec->name,
                   able != NULL ? "; one that does is " : "", able != NULL ? able : "");
  }
  if ((uintptr_t)how->residual % sizeof(float) != 0) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "%s: the address of the residual, %p, is not a multiple of %zu", name,
                   (void*)how->residual, sizeof(float));
  }
  out->states = codec->states;
  const gradlane_code located = locate_states(gl, name, bytes, how, out);
  if (located != GRADLANE_OK) return located;
  if ((submission->flags & GL_FLAG_EXACT) != 0) {
    out->adds_residual = true;
    out->adds_all_states = (codec->flags & GL_CODEC_OWNED) != 0;
  } else if (out->choice == NULL || !out->choice->codes) {
    submission->flags |= GL_FLAG_RESIDUAL;
  }
  return GRADLANE_OK;
}

// Checks the output of an all-to-all. It has no residual, so the submission's fields for one describe `target`.
static gradlane_code check_out(gradlane_context* gl, void* target, size_t bytes, struct gl_operation* out) {
  struct gl_submission* const submission = &out->submission;
  out->residual = (struct gl_range){.base = target, .bytes = bytes};
  out->states = 1;
  const gradlane_code code = find_unused_segment(gl, "all_to_all", "out", out->residual, &submission->residual_segment,
                                                 &submission->residual_offset);
  if (code != GRADLANE_OK) return code;
  const uintptr_t from = (uintptr_t)out->data.base;
  const uintptr_t to = (uintptr_t)target;
  if (to < from + bytes && from < to + bytes) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "all_to_all: data and out, of %zu bytes each, overlap", bytes);
  }
  return GRADLANE_OK;
}

static gradlane_code check_kind(gradlane_context* gl, enum gl_submission_kind kind, gradlane_type type, int root) {
  const char* const name = gl_kind_name(kind);
  if ((unsigned)type >= sizeof(kTypes) / sizeof(kTypes[0])) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "%s: there is no type %d", name, (int)type);
  }
  if (kind >= GL_REDUCE && (gl->welcome.flags & GL_WELCOME_LOCAL_REDUCE) != 0) {
    return gl_fail(
        gl, GRADLANE_BAD_ARGUMENT,
        "%s: not possible with local_reduce in the daemon's configuration: a node's trainers are one rank there", name);
  }
  if (root < 0 || (uint32_t)root >= gl->welcome.world) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "%s: root %d; ranks are 0 to %u", name, root, gl->welcome.world - 1);
  }
  return GRADLANE_OK;
}

static gradlane_code check_blocks(gradlane_context* gl, enum gl_submission_kind kind, size_t count,
                                  const gradlane_how* how) {
  if (how->blocks == NULL) return GRADLANE_OK;
  const char* const name = gl_kind_name(kind);
  if (kind != GL_REDUCE_SCATTER && kind != GL_ALL_GATHER) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "%s: blocks are only for reduce_scatter and all_gather", name);
  }
  if (how->part_bytes == 0 || how->residual != NULL) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "%s: blocks need part_bytes, and cannot have a residual", name);
  }
  for (uint32_t rank = 0; rank < gl->welcome.world && count > 0; ++rank) {
    if (how->blocks[rank] != NULL) continue;
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "%s: the block of rank %u is NULL", name, rank);
  }
  return GRADLANE_OK;
}

static gradlane_code check_part(gradlane_context* gl, enum gl_submission_kind kind, const gradlane_how* how) {
  const size_t part = how->part_bytes;
  if (part == 0) return GRADLANE_OK;
  if ((gl_has_blocks(kind) && how->blocks == NULL) || kind == GL_BARRIER) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT,
                   "%s: part_bytes is only for all_reduce, broadcast and reduce, or with blocks for reduce_scatter and "
                   "all_gather",
                   gl_kind_name(kind));
  }
  if (part < kLeastPart || (part & (part - 1)) != 0 || part > GL_PART_BYTES) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT,
                   "%s: part_bytes is %zu; allowed: 0, or a power of two from %d to %" PRIu64, gl_kind_name(kind), part,
                   kLeastPart, GL_PART_BYTES);
  }
  return GRADLANE_OK;
}

// Finds out whether the result is to be verified, and can be. Sums that are too small for a codec are not.
static gradlane_code check_verify(gradlane_context* gl, gradlane_type type, const gradlane_how* how,
                                  const struct gl_codec_name* codec, struct gl_operation* out) {
  const struct gl_submission* const submission = &out->submission;
  if (how->verify != 0 && how->verify != 1) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "%s: verify is %d; allowed: 0 and 1", gl_kind_name(submission->kind),
                   how->verify);
  }
  if (how->verify == 0 && !gl->verify && (gl->welcome.flags & GL_WELCOME_VERIFY) == 0) return GRADLANE_OK;
  const uint32_t wanted = GL_CODEC_ADAPTIVE | GL_CODEC_EXACT_SUMS;
  const bool sum = (submission->kind == GL_ALL_REDUCE || submission->kind == GL_REDUCE_SCATTER) &&
                   type == GRADLANE_FLOAT32 && how->reduction == GRADLANE_SUM;
  const bool plain = (submission->flags & GL_FLAG_BACK) == 0 && out->choice == NULL &&
                     (gl->welcome.flags & GL_WELCOME_LOCAL_REDUCE) == 0;
  if (!sum || !plain || (codec->flags & wanted) != wanted) {
    if (how->verify == 0) {
      if (gl_reduces(submission->kind) && how->reduction == GRADLANE_SUM) {
        gl_warn(gl, GL_WARN_NO_CHECKSUM,
                "%s of %s by %.63s is not verified: only sums of float32 by fixed:B are, in all_reduce and "
                "reduce_scatter, without local_reduce",
                gl_kind_name(submission->kind), kTypes[type].name, codec->name);
      }
      return GRADLANE_OK;
    }
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT,
                   "%s: verify is for sums of float32 by all_reduce or reduce_scatter with a codec fixed:B, without "
                   "local_reduce; codec is %.63s",
                   gl_kind_name(submission->kind), codec->name);
  }
  const bool coded = (submission->flags & GL_FLAG_EXACT) == 0 && submission->count != 0 && gl->welcome.world > 1;
  if (coded) out->steps_per_one = (float)(UINT64_C(1) << ((codec->arguments & 0x7f) - 1));
  return GRADLANE_OK;
}

// Checks what an encoded contribution and a result as runs both need. `what` names the one in messages.
static gradlane_code check_allows_encoding(gradlane_context* gl, enum gl_submission_kind kind, gradlane_type type,
                                           const gradlane_how* how, const struct gl_codec_name* codec, const char* what,
                                           struct gl_operation* out) {
  const char* const name = gl_kind_name(kind);
  const uint32_t lattice = GL_CODEC_ADAPTIVE | GL_CODEC_EXACT_SUMS;
  const bool plain = (codec->flags & GL_CODEC_EXACT) != 0 ||
                     ((codec->flags & lattice) == lattice && (codec->flags & GL_CODEC_UNBIASED) == 0);
  if ((kind != GL_ALL_REDUCE && kind != GL_ENCODE) || type != GRADLANE_FLOAT32 || how->reduction != GRADLANE_SUM) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "%s of %s: %s is only for sums of float32 by all_reduce", name,
                   kTypes[type].name, what);
  }
  const bool chooses_codec = strncmp(codec->name, "auto", 4) == 0;
  if (kind == GL_ENCODE) out->choice = NULL;  // of a strategy
  if (out->choice != NULL && !chooses_codec) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "%s: %s needs a strategy that is named, not \"auto\"", name, what);
  }
  if (!plain || chooses_codec) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "%s: codec %.63s excludes %s; raw, pack and fixed:B allow it", name,
                   codec->name, what);
  }
  const bool verifies = how->verify != 0 || gl->verify || (gl->welcome.flags & GL_WELCOME_VERIFY) != 0;
  if (verifies && kind == GL_ALL_REDUCE) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "%s: a sum with %s cannot be verified", name, what);
  }
  if (how->residual != NULL) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "%s: %s excludes a residual", name, what);
  }
  if (out->staged) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "%s: %s needs data in a buffer of gradlane_alloc()", name, what);
  }
  if ((gl->welcome.flags & GL_WELCOME_LOCAL_REDUCE) != 0) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "%s: %s is not possible with local_reduce in the daemon's configuration",
                   name, what);
  }
  return GRADLANE_OK;
}

static bool overlap(struct gl_range one, struct gl_range other) {
  const uintptr_t a = (uintptr_t)one.base;
  const uintptr_t b = (uintptr_t)other.base;
  return a < b + other.bytes && b < a + one.bytes;
}

// Checks whether an operation can give its result as encoded runs.
static gradlane_code check_gives_runs(gradlane_context* gl, enum gl_submission_kind kind, gradlane_type type,
                                      const gradlane_how* how, const struct gl_codec_name* codec,
                                      struct gl_operation* out) {
  const char* const name = gl_kind_name(kind);
  gradlane_code code = check_allows_encoding(gl, kind, type, how, codec, "a result as runs", out);
  if (code != GRADLANE_OK) return code;
  const struct gl_operation_traits traits = {.call = name, .kind = kind, .codec = codec};
  const struct gl_strategy_row* strategy = NULL;
  const bool chosen = how->strategy != NULL && strcmp(how->strategy, "auto") != 0;
  code = gl_find_strategy(gl, chosen ? how->strategy : NULL, &traits, &strategy);
  if (code != GRADLANE_OK) return code;
  const bool aggregates = strategy != NULL && (strategy->flags & GL_STRATEGY_BACK) != 0;
  if (!aggregates && (codec->flags & GL_CODEC_ROUNDS_ONCE) == 0) return GRADLANE_OK;
  return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "%s: %s excludes a result as runs", name,
                 aggregates ? "an aggregator" : "codec exact");
}

// Checks that a result as runs has an allowed length, and no hash.
static gradlane_code check_runs_length(gradlane_context* gl, const struct gl_operation* out, uint64_t count) {
  const char* const name = gl_kind_name(GL_ALL_REDUCE);
  if (out->hash != NULL) return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "%s: a result as runs has no hash", name);
  if (out->whole < GRADLANE_EXACT_BELOW) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "%s: the tensor has %" PRIu64 " floats; a result as runs has %d or more",
                   name, out->whole, GRADLANE_EXACT_BELOW);
  }
  if (out->parts <= 1) return GRADLANE_OK;
  return gl_fail(gl, GRADLANE_BAD_ARGUMENT,
                 "%s: %" PRIu64 " floats are more than the %" PRIu64
                 " of one part, the most for a result as runs: divide the tensor, or raise part_bytes or the daemon's "
                 "exchange.max_tensor",
                 name, count, out->each);
}

// Checks the buffer for a result as runs.
static gradlane_code check_runs(gradlane_context* gl, enum gl_submission_kind kind, gradlane_type type,
                                const gradlane_how* how, const struct gl_codec_name* codec, struct gl_operation* out) {
  const char* const name = gl_kind_name(kind);
  struct gl_submission* const submission = &out->submission;
  if (how->runs == NULL || kind == GL_ENCODE) return GRADLANE_OK;
  const gradlane_code code = check_gives_runs(gl, kind, type, how, codec, out);
  if (code != GRADLANE_OK) return code;
  if (check_runs_length(gl, out, submission->count) != GRADLANE_OK) return GRADLANE_BAD_ARGUMENT;
  const size_t least = gradlane_runs_space(submission->count);
  if ((uintptr_t)how->runs % sizeof(uint64_t) != 0) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "%s: runs at %p is not at a multiple of %zu", name, how->runs,
                   sizeof(uint64_t));
  }
  if (how->runs_bytes < least) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "%s: runs has %zu bytes; %zu floats need %zu (gradlane_runs_space)", name,
                   how->runs_bytes, (size_t)submission->count, least);
  }
  out->runs = (struct gl_range){.base = how->runs, .bytes = how->runs_bytes};
  submission->flags |= GL_FLAG_RUNS;
  const gradlane_code found =
      find_unused_segment(gl, name, "runs", out->runs, &submission->runs_segment, &submission->runs_offset);
  if (found != GRADLANE_OK || !overlap(out->runs, out->data)) return found;
  return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "%s: data and runs overlap", name);
}

// Checks a contribution that is encoded before its operation, or that is to be encoded.
static gradlane_code check_encoded(gradlane_context* gl, enum gl_submission_kind kind, gradlane_type type,
                                   const gradlane_how* how, const struct gl_codec_name* codec,
                                   struct gl_operation* out) {
  const char* const name = gl_kind_name(kind);
  struct gl_submission* const submission = &out->submission;
  if (how->encoded == NULL && kind != GL_ENCODE) return GRADLANE_OK;
  const gradlane_code code = check_allows_encoding(gl, kind, type, how, codec, "an encoded contribution", out);
  if (code != GRADLANE_OK) return code;
  if (submission->count == 0) {
    if (kind != GL_ENCODE) return GRADLANE_OK;
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "%s: there are no floats", name);
  }
  const size_t blocks = (submission->count + GL_ENCODED_BLOCK - 1) / GL_ENCODED_BLOCK;
  const size_t least =
      kind == GL_ENCODE ? gradlane_encoded_space(submission->count) : (blocks + 1) * sizeof(uint64_t);  // the table
  if (how->encoded == NULL || how->encoded_bytes < least) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "%s: encoded has %zu bytes; %zu floats need %zu", name,
                   how->encoded == NULL ? 0 : how->encoded_bytes, (size_t)submission->count, least);
  }
  if (out->parts > 1 && out->each % GL_ENCODED_BLOCK != 0 && kind == GL_ENCODE) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT,
                   "%s: the daemon's limit is %" PRIu64 " bytes: raise its exchange.max_tensor", name,
                   gl->welcome.max_bytes);
  }
  out->encoded = (struct gl_range){.base = (uint8_t*)(uintptr_t)how->encoded, .bytes = how->encoded_bytes};
  submission->flags |= GL_FLAG_CODEC | (kind == GL_ENCODE ? 0 : GL_FLAG_ENCODED);
  submission->codec = codec->id;
  submission->codec_arguments = codec->arguments;
  submission->encoded_bytes = how->encoded_bytes;
  submission->encoded_count = submission->count;
  const gradlane_code found = find_unused_segment(gl, name, "encoded", out->encoded, &submission->residual_segment,
                                                  &submission->residual_offset);
  if (found != GRADLANE_OK || !(overlap(out->encoded, out->data) || overlap(out->encoded, out->runs))) return found;
  return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "%s: encoded overlaps data or runs", name);
}

gradlane_code gl_read_how(gradlane_context* gl, const char* call, const gradlane_how* given, gradlane_how* how) {
  const gradlane_code code = gl_check_context(gl, call);
  if (code != GRADLANE_OK) return code;
  *how = (gradlane_how)GRADLANE_HOW_INIT;
  if (given == NULL || gl_read_struct(how, sizeof(*how), kLeastHow, given)) return GRADLANE_OK;
  return gl_fail(gl, GRADLANE_BAD_ARGUMENT,
                 "%s: struct_size of gradlane_how is %zu; this library knows %d to %zu: start from GRADLANE_HOW_INIT, "
                 "and use a library as new as gradlane.h",
                 call, given->struct_size, kLeastHow, sizeof(*how));
}

gradlane_code gl_check_operation(gradlane_context* gl, enum gl_submission_kind kind, void* data, void* target,
                                 size_t count, gradlane_type type, int root, const gradlane_how* given,
                                 struct gl_operation* out) {
  const char* const call = gl_kind_name(kind);
  gradlane_how how;
  gradlane_code code = gl_read_how(gl, call, given, &how);
  if (code != GRADLANE_OK) return code;
  memset(out, 0, sizeof(*out));
  struct gl_submission* const submission = &out->submission;
  submission->kind = (uint8_t)kind;
  submission->type = (uint8_t)type;
  submission->count = count;
  out->whole = how.whole != 0 ? how.whole : count;
  if (kind == GL_BROADCAST || kind == GL_REDUCE) submission->root = (uint64_t)root;
  if (kind == GL_GATHER || kind == GL_SCATTER) submission->block_root = (uint32_t)root;
  submission->tag = how.has_tag != 0 ? how.tag : gl->next_tag;

  code = gl_read_limit(gl, call, how.timeout_ms, &submission->timeout_ms);
  if (code != GRADLANE_OK) return code;
  if (submission->timeout_ms == 0) submission->timeout_ms = gl->timeout_ms;
  code = check_kind(gl, kind, type, root);
  if (code == GRADLANE_OK) code = check_blocks(gl, kind, count, &how);
  if (code == GRADLANE_OK) code = check_part(gl, kind, &how);
  if (code != GRADLANE_OK) return code;
  out->rows = how.blocks;
  out->hash = how.hash;
  size_t bytes = 0;
  code = divide_into_parts(gl, kind, count, &kTypes[type], how.part_bytes, out, &bytes);
  if (code != GRADLANE_OK) return code;
  out->data = (struct gl_range){.base = data, .bytes = out->rows != NULL ? count * out->width : bytes};
  if (data == NULL && out->data.bytes != 0 && how.part_bytes != 0) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "%s: data is NULL", call);
  }
  out->staged = how.part_bytes != 0 && bytes != 0 && (out->rows != NULL || gl_find_buffer(gl, data) == NULL);
  code = out->staged ? check_users(gl, call, "data", out->data)
                     : find_unused_segment(gl, call, "data", out->data, &submission->segment, &submission->offset);
  if (code != GRADLANE_OK) return code;
  if (kind == GL_ALL_TO_ALL) code = check_out(gl, target, bytes, out);
  if (code != GRADLANE_OK) return code;
  code = check_reduction(gl, kind, &kTypes[type], &how, submission);
  if (code != GRADLANE_OK) return code;
  struct gl_codec_name codec;
  code = gl_choose_coding(gl, kind == GL_ENCODE ? GL_ALL_REDUCE : kind, type, &how, out, &codec);
  if (code == GRADLANE_OK) code = check_runs(gl, kind, type, &how, &codec, out);
  if (code == GRADLANE_OK) code = check_encoded(gl, kind, type, &how, &codec, out);
  if (code != GRADLANE_OK || out->encoded.bytes > 0 || out->runs.bytes > 0) return code;
  code = check_residual(gl, kind, type, bytes, &how, &codec, out);
  if (code == GRADLANE_OK) code = check_verify(gl, type, &how, &codec, out);
  if (code == GRADLANE_OK) gl_note_exact(gl, &how, &codec, out);
  return code;
}

gradlane_code gradlane_check_runs(gradlane_context* gl, const char* codec, const char* strategy, size_t count) {
  GL_LOCK(gl);
  gradlane_code code = gl_check_context(gl, "gradlane_check_runs");
  if (code != GRADLANE_OK) return code;
  gradlane_how how = GRADLANE_HOW_INIT;
  how.codec = codec;
  how.strategy = strategy;
  struct gl_operation operation = {.whole = GRADLANE_EXACT_BELOW, .parts = 1};
  struct gl_codec_name found;
  code = gl_choose_coding(gl, GL_ALL_REDUCE, GRADLANE_FLOAT32, &how, &operation, &found);
  if (code == GRADLANE_OK) code = check_gives_runs(gl, GL_ALL_REDUCE, GRADLANE_FLOAT32, &how, &found, &operation);
  if (code != GRADLANE_OK) return code;
  size_t bytes = 0;
  code = divide_into_parts(gl, GL_ALL_REDUCE, count, &kTypes[GRADLANE_FLOAT32], 0, &operation, &bytes);
  operation.whole = count;
  return code == GRADLANE_OK ? check_runs_length(gl, &operation, count) : code;
}
