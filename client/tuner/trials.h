// trials.h - the choice of a way for a class of operations: trials of several ways, agreement of ranks on their times,
// and later trials (pure: no clock, no I/O, no allocation)
//
// A class has operations of about one size that ask for the same. A way is a strategy and a codec. The first way is the
// baseline: it is exact and has the strategy of operations that ask for nothing. All ranks call gl_tuner_next() for
// the same operations in the same order. All ranks also use the same predictions and trial times, on which they have
// agreed. So they choose alike. The times of a single rank decide nothing.
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum {
  GL_MAX_CANDIDATES = 64,    // most ways of a class
  GL_TRIED = 4,              // most ways of a round
  GL_TRIALS = 2 * GL_TRIED,  // most trials of a stage
  GL_TRIAL_PAUSE = 512,      // least number of operations between two rounds
};

// The time of a trial of which nothing is known. It is larger than any time.
#define GL_TRIAL_UNKNOWN 1e300

struct gl_timed_candidate {
  double predicted;   // predicted time in ns, for the size of the class
  double measured;    // ns per byte, agreed in the last round that tried it; 0: no round has
  uint32_t strategy;  // a number that ways of one strategy have in common; codec: likewise
  uint32_t codec;
  bool exact;
};

// A round has up to three stages. In the first, each way is tried once, one after the other. In the second, ways that
// are still in question are tried twice more. In the third, two ways that are close to each other are tried four times
// more.
enum gl_tuner_state { GL_TUNER_TRYING, GL_TUNER_AGREEING, GL_TUNER_SETTLED };

struct gl_tuner {
  struct gl_timed_candidate candidates[GL_MAX_CANDIDATES];
  unsigned count;  // number of ways
  bool predicted;  // predictions are there
  bool frozen;     // something else has chosen: nothing is tried
  enum gl_tuner_state state;
  unsigned chosen;
  // ---- This round
  uint32_t round;  // goes up with each stage
  unsigned stage;
  unsigned all[GL_TRIED];  // ways of its first stage
  unsigned all_count;
  unsigned tried[GL_TRIED];  // ways of this stage
  unsigned tries;
  // times of each of these that ranks agreed on in this round, ns per byte, least first
  double known[GL_TRIED][GL_TRIALS];
  unsigned knows[GL_TRIED];
  unsigned trial;   // the next trial, or the one that is not full yet
  uint64_t filled;  // elements that this trial has so far
  double ns[GL_TRIALS];
  double bytes[GL_TRIALS];
  uint64_t left;        // GL_TUNER_SETTLED: operations until the next round
  uint64_t operations;  // number of operations, ever
  uint32_t changes;     // number of times that it chose another way than before
};

enum gl_turn {
  GL_TURN_GO,       // the operation goes by `candidate`
  GL_TURN_PREDICT,  // predictions are needed; then ask again
  // Ranks must agree on the trials of this round first: gl_tuner_give(), gl_tuner_take(), then ask again.
  GL_TURN_AGREE
};

// The turn of one operation. `trial` is -1 if it is no trial.
struct gl_selection {
  unsigned candidate;
  int trial;
  uint32_t round;
};

// Initializes `rounds`, which has count and ways, except `measured`. The first operation needs no predictions.
void gl_tuner_begin(struct gl_tuner* rounds);
// Begins the first round, as predictions have been filled in.
void gl_tuner_predict(struct gl_tuner* rounds);

// Returns what the next operation must do, of `count` elements of a tensor of `whole`. Pieces of one tensor are one
// trial.
enum gl_turn gl_tuner_next(struct gl_tuner* rounds, uint64_t count, uint64_t whole, struct gl_selection* turn);

// Returns whether the next operation is a trial, or may be one. A trial begins when nothing else is under way, and
// nothing begins before it is over: operations that overlap have no times of their own. Pieces of one tensor may
// overlap.
bool gl_tuner_alone(const struct gl_tuner* rounds);

// Notes how long this rank has worked on an operation of a trial. An operation of another round is ignored.
void gl_tuner_note(struct gl_tuner* rounds, const struct gl_selection* turn, double ns, double bytes);

// Writes what this rank knows of the trials, in ns per byte. Ranks then agree on the least of their times. The rank
// that comes last sees how long an operation takes; others also see how long they wait for it. With `greatest` they
// agree on the greatest time, for operations that some ranks finish early. Then gl_tuner_take() takes the agreed
// times, and settles or begins the next stage.
void gl_tuner_give(const struct gl_tuner* rounds, bool greatest, double times[GL_TRIALS]);
void gl_tuner_take(struct gl_tuner* rounds, const double times[GL_TRIALS]);

// Finds the fastest way that is exact, or that rounds. It looks at ways that were tried, else at predictions. Returns
// false if there is none.
bool gl_tuner_best(const struct gl_tuner* rounds, bool exact, unsigned* candidate);
