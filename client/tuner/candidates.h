// candidates.h - the candidates of operations that leave their strategy or codec to the library (pure)
#pragma once

#include "client/abi.h"
#include "client/tuner/auto_name.h"
#include "client/tuner/trials.h"

// The tables that a daemon has sent.
struct gl_tuning_tables {
  const struct gl_way_row* candidates;
  uint32_t way_count;
  const struct gl_plan_row* plan;
  uint32_t plan_count;
  const struct gl_strategy_row* strategies;
  uint32_t strategy_count;
  const struct gl_codec_row* codecs;
  uint32_t codec_count;
};

// A function that looks up a codec by name. It returns GL_FOUND, GL_NOT_FOUND, or another number for an error.
enum { GL_FOUND = 0, GL_NOT_FOUND = 1 };
struct gl_codec_finder {
  int (*find)(void* of, const char* name, struct gl_codec_name* codec);
  void* of;
};

// The properties of operations for which candidates are listed.
struct gl_tuning_request {
  enum gl_submission_kind kind;
  const struct gl_auto* asked;  // bound of the codec that is to be chosen; NULL: none is to be chosen
  // codec that is named; the exact codec if one is to be chosen; NULL: elements are sent without a codec
  const struct gl_codec_name* codec;
  uint32_t strategy;  // strategy that is named, or that of operations that name none
  bool only;          // a strategy is named: no other one may be used
  bool residual;      // there is a residual
};

// A candidate: a strategy and a codec.
struct gl_candidate {
  uint32_t strategy;
  uint8_t codec;
  bool exact;
  uint64_t arguments;
  int row;  // row of the daemon's table that predicts for it; -1: none
  char name[GL_NAME];
};

// The candidate that a row of the plan gives to operations of a set, and the reason.
struct gl_planned {
  uint8_t candidate;
  uint8_t why;  // GL_REASON_...
};

// The candidates of operations that ask for the same. The first is the baseline.
struct gl_choice_set {
  uint8_t kind;
  bool codes;          // candidates have a codec; false: elements are sent without a codec
  bool residual;       // there is a residual
  bool asks;           // operations ask for a codec that may round
  uint32_t strategy;   // only strategy that may be used; 0: any
  uint64_t arguments;  // arguments of the codec that is named, where only the strategy is chosen
  uint8_t codec;
  char asked[GL_NAME];  // name of the codec that was asked for
  unsigned count;
  struct gl_candidate candidates[GL_MAX_CANDIDATES];
  struct gl_planned plan[GL_MAX_PLAN_ROWS];
  struct gl_choice_set* next;
};

// Fills in `count`, `candidates` and `plan` of a set whose other fields are filled in. No row of the plan makes
// operations round more than was asked for. Returns GL_FOUND, or the finder's error.
int gl_fill_candidates(const struct gl_tuning_tables* tables, const struct gl_tuning_request* request,
                       const struct gl_codec_finder* finder, struct gl_choice_set* set);
