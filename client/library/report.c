// report.c - reports on classes of operations: rows in shared memory that the daemon reads (the thread of the context)
#include "client/library/report.h"

#include <stdio.h>
#include <string.h>

// Number of rows at the end of the table, for operations to which no codec applies.
enum { kExactRows = 8 };

struct gl_report_row* gl_report_of(gradlane_context* gl, unsigned number) {
  const uint32_t rows = gl->choices.report_count;
  return rows > kExactRows && number < rows - kExactRows ? &gl->choices.reports[number] : NULL;
}

static double per_byte(const struct gl_choice_class* it, unsigned candidate) {
  const double ns = it->tuner.candidates[candidate].predicted;
  return ns < GL_TRIAL_UNKNOWN / 2 ? ns / (double)(UINT64_C(1) << (GL_LEAST_SIZE + it->size)) : 0;
}

static bool has_lossy(const struct gl_choice_class* it) {
  for (unsigned i = 0; i < it->set->count; ++i) {
    if (!it->set->candidates[i].exact) return true;
  }
  return false;
}

static uint8_t reason_of(const struct gl_choice_class* it, bool rival_measured) {
  const struct gl_tuner* const tuner = &it->tuner;
  if (it->why != GL_REASON_NONE) return it->why;
  if (tuner->round == 0 && tuner->state != GL_TUNER_SETTLED) return GL_REASON_TRYING;
  if (!it->set->candidates[tuner->chosen].exact) return GL_REASON_NONE;
  if (!it->set->asks) return GL_REASON_EXACT;
  if (!has_lossy(it)) return GL_REASON_NO_CODEC;
  return rival_measured ? GL_REASON_SLOWER : GL_REASON_UNLIKELY;
}

static void fill_row(const struct gl_choice_class* it, struct gl_report_row* row) {
  const struct gl_tuner* const tuner = &it->tuner;
  const struct gl_candidate* const candidate = &it->set->candidates[tuner->chosen];
  unsigned rival = 0;
  const bool has_rival = gl_tuner_best(tuner, !candidate->exact, &rival);
  const double rival_measured = has_rival ? tuner->candidates[rival].measured : 0;
  row->strategy = candidate->strategy;
  row->kind = it->set->kind;
  row->type = it->type;
  row->size = (uint8_t)(GL_LEAST_SIZE + it->size);
  row->reason = reason_of(it, rival_measured > 0);
  row->exact = candidate->exact ? 1 : 0;
  row->frozen = it->why == GL_REASON_PLAN || it->why == GL_REASON_ROUNDS || it->why == GL_REASON_NO_PLAN ? 1 : 0;
  row->tried = (uint16_t)tuner->tries;
  row->changes = tuner->changes;
  row->rival_strategy = has_rival ? it->set->candidates[rival].strategy : 0;
  row->predicted = per_byte(it, tuner->chosen);
  row->measured = tuner->candidates[tuner->chosen].measured;
  row->baseline = tuner->candidates[0].measured;
  row->rival_measured = rival_measured;
  memcpy(row->asked, it->set->asked, sizeof(row->asked));
  memcpy(row->codec, candidate->name, sizeof(row->codec));
  memset(row->rival, 0, sizeof(row->rival));
  if (has_rival) memcpy(row->rival, it->set->candidates[rival].name, sizeof(row->rival));
}

// Clears the rows of classes only, as operations to which no codec applies do not depend on choices.
void gl_forget_reports(gradlane_context* gl) {
  const uint32_t rows = gl->choices.report_count;
  for (uint32_t i = 0; i + kExactRows < rows; ++i) gl->choices.reports[i].version = 0;
}

void gl_count_report(const struct gl_choice_class* it) {
  struct gl_report_row* const row = it->report;
  if (row == NULL) return;
  if (row->version == 0 || it->tuner.operations == 1) gl_report(it);
  row->operations = it->tuner.operations;
  row->bytes = it->bytes;
  row->sent_bytes = it->sent_bytes;
}

void gl_report(const struct gl_choice_class* it) {
  struct gl_report_row* const row = it->report;
  if (row == NULL) return;
  struct gl_report_row now = {
      .version = row->version, .operations = it->tuner.operations, .bytes = it->bytes, .sent_bytes = it->sent_bytes};
  fill_row(it, &now);
  ++now.version;
  *row = now;
}

void gl_report_exact(gradlane_context* gl, const struct gl_operation* operation, const char* codec) {
  const struct gl_submission* const submission = &operation->submission;
  const uint32_t rows = gl->choices.report_count;
  for (uint32_t i = rows > kExactRows ? rows - kExactRows : rows; i < rows; ++i) {
    struct gl_report_row* const row = &gl->choices.reports[i];
    const bool same = row->kind == submission->kind && row->type == submission->type;
    if (row->version != 0 && !same) continue;
    const bool fresh = row->version == 0;
    row->kind = submission->kind;
    row->type = submission->type;
    row->reason = GL_REASON_TYPE;
    row->exact = 1;
    ++row->operations;
    row->bytes += submission->count * operation->width;
    if (fresh) (void)snprintf(row->asked, sizeof(row->asked), "%s", codec);
    if (fresh) row->version = 1;
    return;
  }
}
