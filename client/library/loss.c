// loss.c - losses by lossy codecs: figures, and a warning once per class of tensors (the thread of the context)
#include "client/library/loss.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

// The library warns from these shares on, in a sample of this rank's contribution to a sum.
static const double kNormShare = 0.1;    // lost share of the norm
static const double kZeroedShare = 0.5;  // share of the nonzero values that became zero

static const char* sum_name(uint8_t kind) {
  if (kind == GL_REDUCE) return "reduce";
  return kind == GL_REDUCE_SCATTER ? "reduce_scatter" : "all_reduce";
}

// Returns the codec, under the name that the caller or the configuration has used for it.
static const struct gl_codec_name* codec_of(const gradlane_context* gl, const struct gl_submission* submission) {
  static const struct gl_codec_name kUnknown = {.name = "its codec"};
  const bool named = (submission->flags & GL_FLAG_CODEC) != 0;
  for (size_t i = 0; i < gl->names.count; ++i) {
    const struct gl_codec_name* const it = &gl->names.entries[i];
    // The first entry is the codec of the configuration.
    if (!named || (it->id == submission->codec && it->arguments == submission->codec_arguments)) return it;
  }
  return &kUnknown;
}

static const char* remedy(const struct gl_codec_name* codec) {
  if ((codec->flags & GL_CODEC_ADAPTIVE) != 0) {
    return "error feedback (a residual; in PyTorch State(error_feedback=True)), an adaptive bound with enough bits "
           "(AdaptiveBound; in PyTorch fixed:adaptive), or codec raw";
  }
  if ((codec->flags & GL_CODEC_FEEDBACK) != 0) {
    return "error feedback, for which this codec is made (a residual; in PyTorch State(error_feedback=True)), or codec "
           "raw";
  }
  return "codec raw, or a codec with error feedback";
}

// Returns the lost share of the norm in whole percent. It counts up, as libc has no square root.
static unsigned norm_percent(const struct gl_loss_sum* loss) {
  unsigned percent = 0;
  while (percent < 100 && (percent + 1) * (percent + 1) * loss->squares <= 1e4 * loss->lost_squares) ++percent;
  return percent;
}

// Returns the share of values that became zero: at most 100, whatever the daemon has written.
static unsigned zeroed_percent(const struct gl_loss_sum* loss) {
  return loss->zeroed >= loss->values ? 100 : (unsigned)(100.0 * (double)loss->zeroed / (double)loss->values);
}

static bool too_much(const struct gl_loss_sum* loss) {
  return loss->lost_squares >= kNormShare * kNormShare * loss->squares ||
         (double)loss->zeroed >= kZeroedShare * (double)loss->values;
}

// Makes an entry for a class that the caller was not warned of. Returns NULL if the caller was, or if there are more
// classes than entries.
static struct gl_loss_warning* new_class(struct gl_losses* losses, const struct gl_operation* operation) {
  const struct gl_submission* const submission = &operation->submission;
  for (unsigned i = 0; i < losses->count; ++i) {
    const struct gl_loss_warning* const it = &losses->warnings[i];
    if (it->elements == operation->whole && it->kind == submission->kind && it->codec == submission->codec &&
        it->arguments == submission->codec_arguments) {
      return NULL;
    }
  }
  if (losses->count - losses->others == GL_LOSS_WARNINGS) return NULL;
  struct gl_loss_warning* const it = &losses->warnings[losses->count++];
  *it = (struct gl_loss_warning){.elements = operation->whole,
                                 .kind = submission->kind,
                                 .codec = submission->codec,
                                 .arguments = submission->codec_arguments,
                                 .untold = true};
  return it;
}

void gl_add_loss(struct gl_loss_sum* to, const struct gl_loss_sum* loss) {
  to->values += loss->values;
  to->zeroed += loss->zeroed;
  to->squares += loss->squares;
  to->lost_squares += loss->lost_squares;
}

void gl_note_loss(gradlane_context* gl, const struct gl_operation* operation, const struct gl_loss_sum* loss) {
  const struct gl_submission* const submission = &operation->submission;
  struct gl_losses* const losses = &gl->losses;
  if (loss->values == 0) return;
  gl_add_loss(&losses->total, loss);
  if (!too_much(loss)) return;
  struct gl_loss_warning* const warning = new_class(losses, operation);
  if (warning == NULL) return;
  const struct gl_codec_name* const codec = codec_of(gl, submission);
  (void)snprintf(warning->text, sizeof(warning->text),
                 "%s of %" PRIu64
                 " elements by codec %.63s lost %u %% of the norm of rank %u's values, and %u %% of its nonzero values "
                 "became zero (sample). Training may stall. Use %s",
                 sum_name(submission->kind), operation->whole, codec->name, norm_percent(loss), gl->welcome.rank,
                 zeroed_percent(loss), remedy(codec));
  if (losses->keep) return;
  (void)fprintf(stderr, "gradlane: warning: %s\n", gradlane_warning(gl));
}

void gl_warn(gradlane_context* gl, uint8_t what, const char* format, ...) {
  enum { kNoKind = 255 };
  struct gl_losses* const losses = &gl->losses;
  for (unsigned i = 0; i < losses->count; ++i) {
    if (losses->warnings[i].kind == kNoKind && losses->warnings[i].codec == what) return;
  }
  if (losses->others == GL_OTHER_WARNINGS) return;
  ++losses->others;
  struct gl_loss_warning* const it = &losses->warnings[losses->count++];
  *it = (struct gl_loss_warning){.kind = kNoKind, .codec = what, .untold = true};
  va_list arguments;
  va_start(arguments, format);
  (void)vsnprintf(it->text, sizeof(it->text), format, arguments);
  va_end(arguments);
  if (!losses->keep) (void)fprintf(stderr, "gradlane: warning: %s\n", gradlane_warning(gl));
}

const char* gradlane_warning(gradlane_context* gl) {
  if (gl == NULL) return NULL;
  for (unsigned i = 0; i < gl->losses.count; ++i) {
    struct gl_loss_warning* const it = &gl->losses.warnings[i];
    if (!it->untold) continue;
    it->untold = false;
    return it->text;
  }
  return NULL;
}
