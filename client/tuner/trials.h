// trials.h - the choice of a candidate for a class of operations: trials of several candidates, agreement of ranks on
// their times, and later trials (pure: no clock, no I/O, no allocation)
//
// A class has operations of about one size that ask for the same. A candidate is a strategy and a codec. The first
// candidate is the baseline: it is exact and has the strategy of operations that ask for nothing. All ranks call
// gl_tuner_next() for the same operations in the same order. All ranks also use the same predictions and trial times,
// on which they have agreed. So they choose alike. The times of a single rank decide nothing.
#pragma once

#include <stdbool.h>
#include <stdint.h>

enum {
  GL_MAX_CANDIDATES = 64,    // most candidates of a class
  GL_TRIED = 4,              // most candidates of a round
  GL_TRIALS = 2 * GL_TRIED,  // most trials of a stage
  GL_TRIAL_PAUSE = 512,      // least number of operations between two rounds
};

// The time of a trial of which nothing is known. It is larger than any time.
#define GL_TRIAL_UNKNOWN 1e300

struct gl_timed_candidate {
  double predicted;  // predicted time in ns, for the size of the class
  double measured;   // ns per byte, agreed in the latest round that tried it; 0 if no round has
  // numbers of the strategy and of the codec; candidates with the same strategy or codec have the same number
  uint32_t strategy;
  uint32_t codec;
  bool exact;
};

// A round has up to three stages. In the first, each candidate is tried once, one after the other. In the second,
// candidates that are still in question are tried twice more. In the third, two candidates that are close to each other
// are tried four times more.
enum gl_tuner_state { GL_TUNER_TRYING, GL_TUNER_AGREEING, GL_TUNER_SETTLED };

struct gl_tuner {
  struct gl_timed_candidate candidates[GL_MAX_CANDIDATES];
  unsigned count;  // number of candidates
  bool predicted;  // predictions have been filled in
  bool frozen;     // the choice is fixed from outside, by a plan or after an error: nothing is tried
  enum gl_tuner_state state;
  unsigned chosen;
  // ---- This round
  uint32_t round;  // goes up with each stage
  unsigned stage;
  unsigned all[GL_TRIED];  // candidates of this round's first stage
  unsigned all_count;
  unsigned tried[GL_TRIED];  // candidates of this stage
  unsigned tries;
  // for each candidate of `tried`: times on which ranks agreed in this round, ns per byte, in ascending order
  double known[GL_TRIED][GL_TRIALS];
  unsigned knows[GL_TRIED];
  unsigned trial;   // number of the trial that operations belong to at present
  uint64_t filled;  // elements that operations of the present trial have had
  double ns[GL_TRIALS];
  double bytes[GL_TRIALS];
  uint64_t left;        // GL_TUNER_SETTLED: operations until the next round
  uint64_t operations;  // number of operations, ever
  uint32_t changes;     // number of times that it chose another candidate than before
};

enum gl_turn {
  GL_TURN_GO,       // the operation uses `candidate`
  GL_TURN_PREDICT,  // predictions are needed: gl_tuner_predict(), then call gl_tuner_next() again
  // Ranks must first agree on the trials of this stage: gl_tuner_give(), gl_tuner_take(), then gl_tuner_next() again.
  GL_TURN_AGREE
};

// The candidate that one operation uses, and its trial. `trial` is -1 if the operation is no trial.
struct gl_selection {
  unsigned candidate;
  int trial;
  uint32_t round;
};

// Initializes the tuner. The caller has set count and candidates, except `measured`. The first operation needs no
// predictions.
void gl_tuner_begin(struct gl_tuner* tuner);
// Begins the first round, as predictions have been filled in.
void gl_tuner_predict(struct gl_tuner* tuner);

// Returns what the next operation must do. The operation has `count` elements of a tensor of `whole` elements. All
// pieces of one tensor belong to one trial.
enum gl_turn gl_tuner_next(struct gl_tuner* tuner, uint64_t count, uint64_t whole, struct gl_selection* turn);

// Returns whether the next operation is a trial, or may be one. A trial begins when nothing else is under way, and
// nothing begins before it is over, because overlapping operations change each other's times. Pieces of one tensor may
// overlap.
bool gl_tuner_alone(const struct gl_tuner* tuner);

// Notes how long this rank has worked on an operation of a trial. An operation of another round is ignored.
void gl_tuner_note(struct gl_tuner* tuner, const struct gl_selection* turn, double ns, double bytes);

// Writes this rank's times of the trials, in ns per byte. Ranks then agree on the least time of each trial. The rank
// that starts an operation last measures how long it takes; the times of others include the wait for that rank. With
// `greatest` they agree on the greatest time, for operations that some ranks finish early. Then gl_tuner_take() takes
// the agreed times. It makes the choice, or begins the next stage.
void gl_tuner_give(const struct gl_tuner* tuner, bool greatest, double times[GL_TRIALS]);
void gl_tuner_take(struct gl_tuner* tuner, const double times[GL_TRIALS]);

// Finds the fastest candidate that is exact, or that rounds. It compares measured times. If no such candidate was
// measured, it compares predictions. Returns false if there is none.
bool gl_tuner_best(const struct gl_tuner* tuner, bool exact, unsigned* candidate);
