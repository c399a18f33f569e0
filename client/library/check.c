// check.c - arguments of operations, before anything happens (the thread of the context)
#include "client/library/check.h"

#include <inttypes.h>
#include <string.h>

#include "client/library/buffers.h"
#include "client/library/codecs.h"
#include "client/library/requests.h"
#include "client/library/strategies.h"

static const char* const kReductions[] = {"sum", "minimum", "maximum"};

static const char* kind_name(enum gl_submission_kind kind) {
  switch (kind) {
    case GL_ALL_REDUCE:
      return "all_reduce";
    case GL_REDUCE_SCATTER:
      return "reduce_scatter";
    case GL_ALL_GATHER:
      return "all_gather";
    case GL_BROADCAST:
      return "broadcast";
    case GL_BARRIER:
      return "barrier";
    case GL_REDUCE:
      return "reduce";
    case GL_GATHER:
      return "gather";
    case GL_SCATTER:
      return "scatter";
    case GL_ALL_TO_ALL:
      return "all_to_all";
    case GL_CANCEL:
      return "cancel";
    case GL_RESUME:
      return "resume";
  }
  return "operation";
}

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
  kLeastHow = offsetof(gradlane_how, timeout_ms),  // bytes, before version 3
};

static bool reduces(enum gl_submission_kind kind) {
  return kind == GL_ALL_REDUCE || kind == GL_REDUCE_SCATTER || kind == GL_REDUCE;
}

// Each rank has a block.
static bool has_blocks(enum gl_submission_kind kind) {
  return kind == GL_REDUCE_SCATTER || kind == GL_ALL_GATHER || kind == GL_GATHER || kind == GL_SCATTER ||
         kind == GL_ALL_TO_ALL;
}

// What arrives is what was sent, whatever the daemon's codec.
static bool copies_as_is(enum gl_submission_kind kind) {
  return kind == GL_ALL_GATHER || kind == GL_BROADCAST || kind == GL_GATHER || kind == GL_SCATTER;
}

// Bytes of the tensor, and how it is divided (abi.h).
static gradlane_code measure(gradlane_context* gl, enum gl_submission_kind kind, size_t count,
                             const struct type_row* type, struct gl_operation* out, size_t* bytes) {
  out->width = (uint32_t)type->bytes;
  out->blocks = has_blocks(kind);
  out->each = count;
  out->parts = 1;
  const size_t row = type->bytes * (out->blocks ? gl->welcome.world : 1);
  if (__builtin_mul_overflow(count, row, bytes)) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "%s: %zu elements of %s%s are more than there is memory", kind_name(kind),
                   count, type->name, out->blocks ? " per rank" : "");
  }
  uint64_t most = GL_PART_BYTES;
  while (most > gl->welcome.max_bytes) most /= 2;
  if (*bytes <= most) return GRADLANE_OK;
  if (row > most) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT,
                   "%s: an element of %s per rank is %zu bytes, and the daemon takes %" PRIu64
                   " at a time: raise its exchange.max_tensor",
                   kind_name(kind), type->name, row, gl->welcome.max_bytes);
  }
  out->each = most / row;
  // Lanes and packets divide by such granules.
  if (out->each > kGranule) out->each -= out->each % kGranule;
  out->parts = (count - 1) / out->each + 1;
  return GRADLANE_OK;
}

// Where `base` lies. `what` is "data", "out" or "residual".
static gradlane_code locate(gradlane_context* gl, const char* kind, const char* what, void* base, size_t bytes,
                            struct gl_range* range, uint8_t* segment, uint64_t* offset) {
  *range = (struct gl_range){.base = base, .bytes = bytes};
  *segment = 0;
  *offset = 0;
  if (bytes == 0) return GRADLANE_OK;
  const struct gl_buffer* const buffer = gl_find_buffer(gl, base);
  if (buffer == NULL) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "%s: %s at %p is not in a buffer of gradlane_alloc() of this context",
                   kind, what, base);
  }
  const size_t left = buffer->bytes - (size_t)(range->base - buffer->base);
  if (bytes > left) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "%s: %s takes %zu bytes, and its buffer has %zu from there on", kind,
                   what, bytes, left);
  }
  const struct gl_request* const user = gl_find_user(gl, base, bytes);
  if (user != NULL) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "%s: %s is in use by request %llu, which nobody has waited for", kind,
                   what, (unsigned long long)user->number);
  }
  *segment = (uint8_t)buffer->segment;
  *offset = (uint64_t)(range->base - gl->segments[buffer->segment].base);
  return GRADLANE_OK;
}

static gradlane_code check_average(gradlane_context* gl, enum gl_submission_kind kind, const struct type_row* type) {
  if (!reduces(kind)) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "%s: there is no sum to average", kind_name(kind));
  }
  if (!type->floating) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "%s: average of %s; floating types only", kind_name(kind), type->name);
  }
  return GRADLANE_OK;
}

static gradlane_code check_reduction(gradlane_context* gl, enum gl_submission_kind kind, const struct type_row* type,
                                     const gradlane_how* how, struct gl_submission* submission) {
  const int reduction = how->reduction;
  if (reduction < GRADLANE_SUM || reduction > GRADLANE_MAX) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT,
                   "%s: there is no reduction %d; there are GRADLANE_SUM, GRADLANE_MIN and GRADLANE_MAX",
                   kind_name(kind), reduction);
  }
  if (reduction != GRADLANE_SUM && how->average != 0) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "%s: average of a %s; it is one or the other", kind_name(kind),
                   kReductions[reduction]);
  }
  if (reduction != GRADLANE_SUM && !reduces(kind)) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "%s: there is nothing to take the %s of", kind_name(kind),
                   kReductions[reduction]);
  }
  if (reduction == GRADLANE_MIN) submission->flags |= GL_FLAG_MIN;
  if (reduction == GRADLANE_MAX) submission->flags |= GL_FLAG_MAX;
  if (how->average == 0) return GRADLANE_OK;
  const gradlane_code code = check_average(gl, kind, type);
  if (code == GRADLANE_OK) submission->flags |= GL_FLAG_AVERAGE;
  return code;
}

static uint64_t whole_of(const gradlane_how* how, const struct gl_submission* submission) {
  return how->whole != 0 ? how->whole : submission->count;
}

// Which codec, if any. `codec` is that of the daemon's configuration where none is named. `strategy`: which way round;
// NULL: it is not known.
static gradlane_code check_codec(gradlane_context* gl, enum gl_submission_kind kind, gradlane_type type,
                                 const gradlane_how* how, const struct gl_strategy_row* strategy,
                                 struct gl_submission* submission, struct gl_codec_name* codec) {
  struct gl_codec_pair pair;
  const gradlane_code code = gl_find_codecs(gl, how->codec, &pair);
  if (code != GRADLANE_OK) return code;
  *codec = pair.there;
  const bool copies = copies_as_is(kind);
  const bool exact = copies || (kind == GL_ALL_TO_ALL && how->codec == NULL) || how->reduction != GRADLANE_SUM;
  const bool rounds = codec->exact == 0 || (pair.has_back && pair.back.exact == 0);
  if (exact && how->codec != NULL && rounds) {
    const char* const other = gl_codec_with(gl, GL_CODEC_EXACT);
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "%s: codec %.70s rounds, and %s are exact; name %s%snone",
                   kind_name(kind), how->codec, copies ? "copies" : "minima and maxima", other != NULL ? other : "",
                   other != NULL ? ", or " : "");
  }
  if (pair.has_back && (strategy == NULL || (strategy->flags & GL_STRATEGY_BACK) == 0)) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT,
                   "%s: codec %.70s has one for the way back, as there is with an aggregator; strategy is %s",
                   kind_name(kind), how->codec, strategy != NULL ? strategy->name : "the daemon's");
  }
  if (type != GRADLANE_FLOAT32 || kind == GL_BARRIER) return GRADLANE_OK;
  if (exact || whole_of(how, submission) < GRADLANE_EXACT_BELOW) {
    submission->flags |= GL_FLAG_EXACT;
  } else if (how->codec != NULL) {
    submission->flags |= GL_FLAG_CODEC;
    submission->codec = codec->id;
    submission->param = codec->param;
    if (pair.has_back) {
      submission->flags |= GL_FLAG_BACK;
      submission->back_codec = pair.back.id;
      submission->back_param = pair.back.param;
    }
  }
  return GRADLANE_OK;
}

static gradlane_code check_residual(gradlane_context* gl, enum gl_submission_kind kind, gradlane_type type,
                                    size_t bytes, const gradlane_how* how, const struct gl_codec_name* codec,
                                    struct gl_operation* out) {
  const char* const name = kind_name(kind);
  struct gl_submission* const submission = &out->submission;
  if (how->residual == NULL) return GRADLANE_OK;
  if (!reduces(kind) || type != GRADLANE_FLOAT32 || how->reduction != GRADLANE_SUM) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT,
                   "%s of %s: a residual is for all_reduce, reduce_scatter and reduce of float32, and for sums", name,
                   kTypes[type].name);
  }
  if (codec->feedback == 0) {
    const char* const able = gl_codec_with(gl, GL_CODEC_FEEDBACK);
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "%s: codec %.31s takes no residual%s%s", name, codec->name,
                   able != NULL ? "; one that does is " : "", able != NULL ? able : "");
  }
  if ((uintptr_t)how->residual % sizeof(float) != 0) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "%s: residual at %p is not at a multiple of %zu bytes", name,
                   (void*)how->residual, sizeof(float));
  }
  const gradlane_code located = locate(gl, name, "residual", how->residual, bytes, &out->residual,
                                       &submission->residual_segment, &submission->residual_offset);
  if (located != GRADLANE_OK) return located;
  const uintptr_t data = (uintptr_t)out->data.base;
  const uintptr_t residual = (uintptr_t)how->residual;
  if (residual < data + bytes && data < residual + bytes) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "%s: data and residual, of %zu bytes each, overlap", name, bytes);
  }
  if ((submission->flags & GL_FLAG_EXACT) != 0) {
    out->pays = true;
  } else {
    submission->flags |= GL_FLAG_RESIDUAL;
  }
  return GRADLANE_OK;
}

// Of an all-to-all, which has no residual: what it submits of one is of `target`.
static gradlane_code check_out(gradlane_context* gl, void* target, size_t bytes, struct gl_operation* out) {
  struct gl_submission* const submission = &out->submission;
  const gradlane_code code = locate(gl, "all_to_all", "out", target, bytes, &out->residual,
                                    &submission->residual_segment, &submission->residual_offset);
  if (code != GRADLANE_OK) return code;
  const uintptr_t from = (uintptr_t)out->data.base;
  const uintptr_t to = (uintptr_t)target;
  if (to < from + bytes && from < to + bytes) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "all_to_all: data and out, of %zu bytes each, overlap", bytes);
  }
  return GRADLANE_OK;
}

static gradlane_code check_kind(gradlane_context* gl, enum gl_submission_kind kind, gradlane_type type, int root) {
  const char* const name = kind_name(kind);
  if ((unsigned)type >= sizeof(kTypes) / sizeof(kTypes[0])) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "%s: there is no type %d", name, (int)type);
  }
  if ((has_blocks(kind) || kind == GL_REDUCE) && (gl->welcome.flags & GL_WELCOME_LOCAL_REDUCE) != 0) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT,
                   "%s: not with local_reduce in the daemon's configuration, where the trainers of a node are one rank",
                   name);
  }
  if (root < 0 || (uint32_t)root >= gl->welcome.world) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "%s: root %d; ranks are 0 to %u", name, root, gl->welcome.world - 1);
  }
  return GRADLANE_OK;
}

// Everything but the arguments' own values.
static gradlane_code read_how(gradlane_context* gl, const char* call, const gradlane_how* given, gradlane_how* how) {
  const gradlane_code code = gl_check_context(gl, call);
  if (code != GRADLANE_OK) return code;
  *how = (gradlane_how)GRADLANE_HOW_INIT;
  if (given == NULL || gl_read_struct(how, sizeof(*how), kLeastHow, given)) return GRADLANE_OK;
  return gl_fail(gl, GRADLANE_BAD_ARGUMENT,
                 "%s: struct_size of gradlane_how is %zu; this library knows %d to %zu: start from GRADLANE_HOW_INIT, "
                 "and have a library that is as new as gradlane.h",
                 call, given->struct_size, kLeastHow, sizeof(*how));
}

gradlane_code gl_check_operation(gradlane_context* gl, enum gl_submission_kind kind, void* data, void* target,
                                 size_t count, gradlane_type type, int root, const gradlane_how* given,
                                 struct gl_operation* out) {
  const char* const call = kind_name(kind);
  gradlane_how how;
  gradlane_code code = read_how(gl, call, given, &how);
  if (code != GRADLANE_OK) return code;
  memset(out, 0, sizeof(*out));
  struct gl_submission* const submission = &out->submission;
  submission->kind = (uint8_t)kind;
  submission->type = (uint8_t)type;
  submission->count = count;
  out->whole = whole_of(&how, submission);
  if (kind == GL_BROADCAST || kind == GL_REDUCE) submission->root = (uint64_t)root;
  if (kind == GL_GATHER || kind == GL_SCATTER) submission->block_root = (uint32_t)root;
  submission->tag = how.has_tag != 0 ? how.tag : gl->next_tag;

  code = gl_read_limit(gl, call, how.timeout_ms, &submission->timeout_ms);
  if (code != GRADLANE_OK) return code;
  if (submission->timeout_ms == 0) submission->timeout_ms = gl->timeout_ms;
  code = check_kind(gl, kind, type, root);
  if (code != GRADLANE_OK) return code;
  size_t bytes = 0;
  code = measure(gl, kind, count, &kTypes[type], out, &bytes);
  if (code != GRADLANE_OK) return code;
  code = locate(gl, call, "data", data, bytes, &out->data, &submission->segment, &submission->offset);
  if (code != GRADLANE_OK) return code;
  if (kind == GL_ALL_TO_ALL) code = check_out(gl, target, bytes, out);
  if (code != GRADLANE_OK) return code;
  code = check_reduction(gl, kind, &kTypes[type], &how, submission);
  if (code != GRADLANE_OK) return code;
  const struct gl_strategy_row* strategy = NULL;
  code = gl_find_strategy(gl, call, how.strategy, kind, &strategy);
  if (code != GRADLANE_OK) return code;
  if (how.strategy != NULL) submission->strategy = strategy->code;
  struct gl_codec_name codec;
  code = check_codec(gl, kind, type, &how, strategy, submission, &codec);
  return code != GRADLANE_OK ? code : check_residual(gl, kind, type, bytes, &how, &codec, out);
}
