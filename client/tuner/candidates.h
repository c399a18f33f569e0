// candidates.h - the ways that operations which leave it to the library may go: strategy and codec (pure)
#pragma once

#include "client/abi.h"
#include "client/tuner/auto_name.h"
#include "client/tuner/trials.h"

// What a daemon has said of itself.
struct gl_tuning_tables {
  const struct gl_way_row* ways;
  uint32_t way_count;
  const struct gl_plan_row* plan;
  uint32_t plan_count;
  const struct gl_strategy_row* strategies;
  uint32_t strategy_count;
  const struct gl_codec_row* codecs;
  uint32_t codec_count;
};

// Looks a codec up by name: GL_FOUND, GL_NOT_FOUND, or another number, with which everything ends.
enum { GL_FOUND = 0, GL_NOT_FOUND = 1 };
struct gl_codec_finder {
  int (*find)(void* of, const char* name, struct gl_codec_name* codec);
  void* of;
};

// What operations ask for.
struct gl_tuning_request {
  enum gl_submission_kind kind;
  const struct gl_auto* asked;        // a codec is to be chosen, within this bound; NULL: it is not
  const struct gl_codec_name* codec;  // the exact one where one is to be chosen; NULL: elements travel as they are
  uint32_t strategy;                  // of operations that name none, or the one that is named
  bool only;                          // that is named
  bool residual;                      // there is one
};

// A candidate: a strategy and a codec.
struct gl_way {
  uint32_t strategy;
  uint8_t codec;
  bool exact;
  uint64_t arguments;
  int row;  // of the daemon's table, whose prediction it has; -1: none
  char name[GL_NAME];
};

// What a row of the plan is to operations of a set.
struct gl_planned {
  uint8_t way;
  uint8_t why;  // GL_REASON_...
};

// The candidates of operations that ask for the same. The first is the baseline.
struct gl_choice_set {
  uint8_t kind;
  bool codes;          // the codec is chosen, too
  bool residual;       // there is one
  bool asks;           // for a codec that rounds
  uint32_t strategy;   // the only one; 0: any
  uint64_t arguments;  // of the one that is named, where only the strategy is chosen
  uint8_t codec;
  char asked[GL_NAME];  // the codec by which they were
  unsigned count;
  struct gl_way ways[GL_ROUND_WAYS];
  struct gl_planned plan[GL_MAX_PLAN_ROWS];
  struct gl_choice_set* next;
};

// Fills in count, ways and plan of a set that has all else. Whatever the plan says, nothing is rounded more than was
// asked for. Returns GL_FOUND, or what the finder has ended with.
int gl_fill_candidates(const struct gl_tuning_tables* tables, const struct gl_tuning_request* request,
                       const struct gl_codec_finder* finder, struct gl_choice_set* set);
