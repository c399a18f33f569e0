// coding.c - the codec and the strategy of an operation (the thread of the context)
#include "client/library/coding.h"

#include <string.h>

#include "client/library/choice_sets.h"
#include "client/library/codecs.h"
#include "client/library/kinds.h"
#include "client/library/report.h"
#include "client/library/strategies.h"

static bool is_exact(const struct gl_codec_name* codec) { return (codec->flags & GL_CODEC_EXACT) != 0; }

// Returns whether sums of this type go through the codec.
static bool serves(const struct gl_codec_name* codec, gradlane_type type) {
  switch (type) {
    case GRADLANE_FLOAT32:
      return true;
    case GRADLANE_FLOAT16:
    case GRADLANE_BFLOAT16:
      return (codec->flags & GL_CODEC_HALVES) != 0;
    case GRADLANE_FLOAT64:
      return (codec->flags & GL_CODEC_ROUNDS_ONCE) != 0;
    default:
      return false;
  }
}

// Refuses a codec that rounds, for operations that are exact.
static gradlane_code check_exact(gradlane_context* gl, enum gl_submission_kind kind, const gradlane_how* how,
                                 const struct gl_codec_pair* pair) {
  const bool rounds = !is_exact(&pair->there) || (pair->has_back && !is_exact(&pair->back));
  if (how->codec == NULL || !rounds) return GRADLANE_OK;
  const char* const other = gl_codec_with(gl, GL_CODEC_EXACT, NULL);
  return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "%s: codec %.127s rounds, but %s are exact; use %s%sno codec",
                 gl_kind_name(kind), how->codec, gl_copies_as_is(kind) ? "copies" : "minima and maxima",
                 other != NULL ? other : "", other != NULL ? ", or " : "");
}

static void name_codecs(struct gl_submission* submission, const struct gl_codec_pair* pair) {
  submission->flags |= GL_FLAG_CODEC;
  submission->codec = pair->there.id;
  submission->codec_arguments = pair->there.arguments;
  if (!pair->has_back) return;
  submission->flags |= GL_FLAG_BACK;
  submission->back_codec = pair->back.id;
  submission->back_arguments = pair->back.arguments;
}

// The choices that an operation leaves to the library.
struct to_choose {
  struct gl_auto asked;
  const char* name;  // name of the codec that applies, the caller's or the daemon's
  bool codec;
  bool strategy;
};

static struct to_choose left_to_choose(const gradlane_context* gl, const gradlane_how* how) {
  struct to_choose it = {.name = how->codec != NULL ? how->codec : gl->welcome.codec};
  it.codec = gl_parse_auto(it.name, &it.asked);
  it.strategy = how->strategy != NULL ? strcmp(how->strategy, "auto") == 0
                                      : it.codec || (gl->welcome.flags & GL_WELCOME_AUTO_STRATEGY) != 0;
  return it;
}

// Finds the candidates from which the library chooses when the operation has its turn; none if there is no choice.
static gradlane_code leave_open(gradlane_context* gl, enum gl_submission_kind kind, const gradlane_how* how,
                                const struct to_choose* open, const struct gl_codec_name* coded,
                                struct gl_operation* out) {
  if (out->parts == 0) return GRADLANE_OK;
  const bool asks = open->codec && coded != NULL;
  if ((!asks && !open->strategy) || !gl_reduces(kind) || out->whole < GRADLANE_EXACT_BELOW) return GRADLANE_OK;
  const struct gl_choice_of of = {.kind = kind,
                                  .asked = open->name,
                                  .strategy = open->strategy ? NULL : how->strategy,
                                  .asks = asks ? &open->asked : NULL,
                                  .codec = asks ? NULL : coded,
                                  .residual = how->residual != NULL};
  return gl_find_set(gl, &of, &out->choice);
}

void gl_note_exact(gradlane_context* gl, const gradlane_how* how, const struct gl_codec_name* codec,
                   const struct gl_operation* out) {
  if (out->submission.type == GRADLANE_FLOAT32 || out->whole < GRADLANE_EXACT_BELOW) return;
  if (!gl_reduces(out->submission.kind) || how->reduction != GRADLANE_SUM) return;
  const struct to_choose open = left_to_choose(gl, how);
  if (open.codec ? open.asked.bound != GL_BOUND_EXACT : !is_exact(codec)) gl_report_exact(gl, out, open.name);
}

gradlane_code gl_choose_coding(gradlane_context* gl, enum gl_submission_kind kind, gradlane_type type,
                               const gradlane_how* how, struct gl_operation* out, struct gl_codec_name* codec) {
  struct gl_submission* const submission = &out->submission;
  const struct to_choose open = left_to_choose(gl, how);
  const char* const named = open.strategy ? NULL : how->strategy;
  struct gl_codec_pair pair;
  gradlane_code code = gl_find_codecs(gl, how->codec, &pair);
  if (code != GRADLANE_OK) return code;
  *codec = pair.there;
  const bool exact =
      gl_copies_as_is(kind) || (kind == GL_ALL_TO_ALL && how->codec == NULL) || how->reduction != GRADLANE_SUM;
  if (exact) code = check_exact(gl, kind, how, &pair);
  if (code != GRADLANE_OK) return code;
  const bool floating = type <= GRADLANE_BFLOAT16 && kind != GL_BARRIER;
  const bool lossless = (kind == GL_ALL_GATHER || kind == GL_BROADCAST) && is_exact(&pair.there) &&
                        (pair.there.flags & GL_CODEC_ROUNDS_ONCE) == 0;
  const bool large = out->whole >= GRADLANE_EXACT_BELOW || (pair.there.flags & GL_CODEC_ROUNDS_ONCE) != 0;
  const bool coded = floating && serves(&pair.there, type) && (!exact || lossless) && large;

  const struct gl_operation_traits traits = {
      .call = gl_kind_name(kind), .kind = kind, .codec = coded ? &pair.there : NULL};
  const struct gl_strategy_row* strategy = NULL;
  code = gl_find_strategy(gl, named, &traits, &strategy);
  if (code != GRADLANE_OK) return code;
  if (named != NULL) submission->strategy = strategy->code;
  if (pair.has_back && (strategy == NULL || (strategy->flags & GL_STRATEGY_BACK) == 0)) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT,
                   "%s: codec %.127s has one for the way back, which only an aggregator uses; strategy is %s",
                   traits.call, how->codec, strategy != NULL ? strategy->name : "the daemon's");
  }
  if (!pair.has_back) code = leave_open(gl, kind, how, &open, traits.codec, out);
  if (code != GRADLANE_OK) return code;
  if (open.codec) {
    codec->states = 1;
    (void)strncpy(codec->name, open.name, GL_NAME - 1);
  }
  if ((floating && !coded) || (coded && open.codec && out->choice == NULL)) submission->flags |= GL_FLAG_EXACT;
  if (coded && how->codec != NULL && !open.codec) name_codecs(submission, &pair);
  return GRADLANE_OK;
}

// ---- Questions of the caller

gradlane_code gradlane_check_codec(gradlane_context* gl, const char* codec, const char* strategy) {
  GL_LOCK(gl);
  gradlane_code code = gl_check_context(gl, "gradlane_check_codec");
  if (code != GRADLANE_OK) return code;
  gradlane_how how = GRADLANE_HOW_INIT;
  how.codec = codec;
  how.strategy = strategy;
  struct gl_operation operation = {.whole = GRADLANE_EXACT_BELOW};
  struct gl_codec_name found;
  return gl_choose_coding(gl, GL_ALL_REDUCE, GRADLANE_FLOAT32, &how, &operation, &found);
}
