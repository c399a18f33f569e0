// coding.c - which codec an operation goes through, and which way round (the thread of the context)
#include "client/library/coding.h"

#include "client/library/codecs.h"
#include "client/library/kinds.h"
#include "client/library/strategies.h"

static bool is_exact(const struct gl_codec_name* codec) { return (codec->flags & GL_CODEC_EXACT) != 0; }

// What `kind` must not be given: a codec that rounds what is exact.
static gradlane_code check_exact(gradlane_context* gl, enum gl_submission_kind kind, const gradlane_how* how,
                                 const struct gl_codec_pair* pair) {
  const bool rounds = !is_exact(&pair->there) || (pair->has_back && !is_exact(&pair->back));
  if (how->codec == NULL || !rounds) return GRADLANE_OK;
  const char* const other = gl_codec_with(gl, GL_CODEC_EXACT, NULL);
  return gl_fail(gl, GRADLANE_BAD_ARGUMENT, "%s: codec %.127s rounds, and %s are exact; name %s%snone",
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

gradlane_code gl_choose_coding(gradlane_context* gl, enum gl_submission_kind kind, gradlane_type type,
                               const gradlane_how* how, struct gl_operation* out, struct gl_codec_name* codec) {
  struct gl_submission* const submission = &out->submission;
  struct gl_codec_pair pair;
  gradlane_code code = gl_find_codecs(gl, how->codec, &pair);
  if (code != GRADLANE_OK) return code;
  *codec = pair.there;
  const bool exact =
      gl_copies_as_is(kind) || (kind == GL_ALL_TO_ALL && how->codec == NULL) || how->reduction != GRADLANE_SUM;
  if (exact) code = check_exact(gl, kind, how, &pair);
  if (code != GRADLANE_OK) return code;
  const bool encoded = type == GRADLANE_FLOAT32 && kind != GL_BARRIER;
  const bool coded = encoded && !exact && out->whole >= GRADLANE_EXACT_BELOW;

  const struct gl_cargo cargo = {.call = gl_kind_name(kind), .kind = kind, .codec = coded ? &pair.there : NULL};
  const struct gl_strategy_row* strategy = NULL;
  code = gl_find_strategy(gl, how->strategy, &cargo, &strategy);
  if (code != GRADLANE_OK) return code;
  if (how->strategy != NULL) submission->strategy = strategy->code;
  if (pair.has_back && (strategy == NULL || (strategy->flags & GL_STRATEGY_BACK) == 0)) {
    return gl_fail(gl, GRADLANE_BAD_ARGUMENT,
                   "%s: codec %.127s has one for the way back, as there is with an aggregator; strategy is %s",
                   cargo.call, how->codec, strategy != NULL ? strategy->name : "the daemon's");
  }
  if (encoded && !coded) submission->flags |= GL_FLAG_EXACT;
  if (coded && how->codec != NULL) name_codecs(submission, &pair);
  return GRADLANE_OK;
}

// ---- Questions of the caller

gradlane_code gradlane_check_codec(gradlane_context* gl, const char* codec, const char* strategy) {
  gradlane_code code = gl_check_context(gl, "gradlane_check_codec");
  if (code != GRADLANE_OK) return code;
  gradlane_how how = GRADLANE_HOW_INIT;
  how.codec = codec;
  how.strategy = strategy;
  struct gl_operation operation = {.whole = GRADLANE_EXACT_BELOW};
  struct gl_codec_name found;
  return gl_choose_coding(gl, GL_ALL_REDUCE, GRADLANE_FLOAT32, &how, &operation, &found);
}
