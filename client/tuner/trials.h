// trials.h - which way the operations of a class go: trials of several ways, what ranks agree these came to, and when
// to try again (pure: no clock, no I/O, no allocation)
//
// A class is operations of about one size that are asked for alike. Its ways are strategy and codec; the first one is
// the baseline, exact and by the strategy of operations that ask for nothing. All ranks call gl_rounds_next() for the
// same operations in the same order, and what else it depends on is alike on all of them, so that they choose alike:
// predictions and trial times are what all have agreed on. Nobody's own times decide anything.
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum {
  GL_ROUND_WAYS = 64,        // of a class, at most
  GL_TRIED = 4,              // of these in a round
  GL_TRIALS = 2 * GL_TRIED,  // of a stage, at most
  GL_TRIAL_PAUSE = 512,      // operations between two rounds, at least
};

// A trial of which nothing is known: larger than any time.
#define GL_TRIAL_UNKNOWN 1e300

struct gl_round_way {
  double predicted;   // ns; of the class's size
  double measured;    // ns per byte, agreed in the last round that tried it; 0: none has
  uint32_t strategy;  // ways of one strategy, or of one codec, are alike in that number
  uint32_t codec;
  bool exact;
};

// A round has up to three stages: each way once, one after the other; those that are still in question twice more; and
// two that are close to each other four times more.
enum gl_rounds_state { GL_ROUNDS_TRYING, GL_ROUNDS_AGREEING, GL_ROUNDS_SETTLED };

struct gl_rounds {
  struct gl_round_way ways[GL_ROUND_WAYS];
  unsigned count;  // of these
  bool predicted;  // predictions are there
  bool frozen;     // somebody else has chosen: nothing is tried
  enum gl_rounds_state state;
  unsigned chosen;
  // ---- This round
  uint32_t round;  // counts stages
  unsigned stage;
  unsigned all[GL_TRIED];  // of its first stage
  unsigned all_count;
  unsigned tried[GL_TRIED];  // of this stage
  unsigned tries;
  double known[GL_TRIED][GL_TRIALS];  // of each of these, ns per byte that ranks agreed on in this round, least first
  unsigned knows[GL_TRIED];
  unsigned trial;   // the next one, or the one that is not full yet
  uint64_t filled;  // elements of it so far
  double ns[GL_TRIALS];
  double bytes[GL_TRIALS];
  uint64_t left;        // GL_ROUNDS_SETTLED: operations until the next round
  uint64_t operations;  // ever
  uint32_t changes;     // how often it has settled for another way than before
};

enum gl_turn {
  GL_TURN_GO,       // by `way`
  GL_TURN_PREDICT,  // it needs predictions: then ask again
  GL_TURN_AGREE     // ranks must agree on the trials of this round first: gl_rounds_give(), _take(), then ask again
};

// One operation's turn. `trial` is -1 where it is none.
struct gl_turn_way {
  unsigned way;
  int trial;
  uint32_t round;
};

// `rounds` has count and ways, but for `measured`. The first operation needs no predictions.
void gl_rounds_begin(struct gl_rounds* rounds);
// Predictions have been filled in.
void gl_rounds_predict(struct gl_rounds* rounds);

// The next operation, of `count` elements of a tensor of `whole`: pieces of one tensor are one trial.
enum gl_turn gl_rounds_next(struct gl_rounds* rounds, uint64_t count, uint64_t whole, struct gl_turn_way* turn);

// Whether the next operation is a trial, or may be one: then it begins when nothing else is under way, and nothing
// begins before it is over. What overlaps has no time of its own. Pieces of one tensor may overlap.
bool gl_rounds_alone(const struct gl_rounds* rounds);

// How long this rank has worked on an operation of this trial. What belongs to another round is ignored.
void gl_rounds_note(struct gl_rounds* rounds, const struct gl_turn_way* turn, double ns, double bytes);

// What this rank knows of the trials, in ns per byte, and what all have agreed on: the least of the ranks' values, as
// the rank that comes last sees how long it takes, and others how long they wait for it; or the `greatest`, where some
// are through before the operation is. Settles, or begins the next stage.
void gl_rounds_give(const struct gl_rounds* rounds, bool greatest, double times[GL_TRIALS]);
void gl_rounds_take(struct gl_rounds* rounds, const double times[GL_TRIALS]);

// The fastest way that rounds, or that is exact, of those that were tried; else of those that are predicted. False:
// there is none.
bool gl_rounds_best(const struct gl_rounds* rounds, bool exact, unsigned* way);
