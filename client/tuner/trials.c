// trials.c - trials of the candidates of a class, and what follows from them (pure)
#include "client/tuner/trials.h"

#include <stddef.h>
#include <string.h>

// A candidate is only worth choosing if it takes less than this share of the time of a simpler candidate, or of one
// that rounds less.
static const double kWorth = 0.95;
// A candidate is not tried if its prediction is more than this many times the best one's (in later rounds, the chosen
// one's). kHopeless is for one case in the first round: candidates that round if the best one is exact, or the reverse.
// kUnlikely is for all other cases.
static const double kHopeless = 6;
static const double kUnlikely = 2;
// Later rounds may cost this share of the operations' time.
static const double kTrialShare = 0.01;
static const uint64_t kLongestPause = 1 << 13;

// A candidate is dropped after the first stage if its trial took more than this many times as long as that of the best
// one. Its prediction must also be no better than that of the best one.
static const double kLost = 2;
// Two candidates have a third stage if the slower one takes at most this many times as long.
static const double kClose = 1.15;

// Number of trials of each candidate in each stage.
static const unsigned kTrials[] = {1, 2, 4};
enum { kStages = sizeof(kTrials) / sizeof(kTrials[0]) };

static unsigned trials_of(const struct gl_tuner* it) { return kTrials[it->stage] * it->tries; }

// Returns the index in `tried` of the candidate of this trial. After the first stage, each candidate has two trials in
// a row. The first of these may depend on what the operation before it has left behind, such as a full or empty token
// bucket.
static unsigned place_of(const struct gl_tuner* it, unsigned trial) {
  return it->stage == 0 ? trial : (trial + 1) / 2 % it->tries;
}

static bool is_among(const unsigned* candidates, unsigned count, unsigned candidate) {
  for (unsigned i = 0; i < count; ++i) {
    if (candidates[i] == candidate) return true;
  }
  return false;
}

static bool is_tried(const struct gl_tuner* it, unsigned candidate) {
  return is_among(it->tried, it->tries, candidate);
}

static void try_candidate(struct gl_tuner* it, unsigned candidate) {
  if (it->tries < GL_TRIED && !is_tried(it, candidate)) it->tried[it->tries++] = candidate;
}

// The conditions of `best_of`.
struct wanted {
  bool by_exact;
  bool exact;
  bool new_strategy;  // its strategy differs from those of all candidates that are tried
  bool unmeasured;
  double most;  // largest prediction
};

static bool is_wanted(const struct gl_tuner* it, unsigned candidate, const struct wanted* wanted) {
  const struct gl_timed_candidate* const row = &it->candidates[candidate];
  if (is_tried(it, candidate) || !(row->predicted <= wanted->most)) return false;
  if (wanted->by_exact && row->exact != wanted->exact) return false;
  if (wanted->unmeasured && row->measured > 0) return false;
  for (unsigned i = 0; wanted->new_strategy && i < it->tries; ++i) {
    if (it->candidates[it->tried[i]].strategy == row->strategy) return false;
  }
  return true;
}

// Finds the candidate with the best prediction, or the first one of equal ones. Returns false if there is none.
static bool best_of(const struct gl_tuner* it, const struct wanted* wanted, unsigned* candidate) {
  bool found = false;
  for (unsigned i = 0; i < it->count; ++i) {
    if (!is_wanted(it, i, wanted)) continue;
    if (!found || it->candidates[i].predicted < it->candidates[*candidate].predicted) *candidate = i;
    found = true;
  }
  return found;
}

static double least_predicted(const struct gl_tuner* it) {
  double least = GL_TRIAL_UNKNOWN;
  for (unsigned i = 0; i < it->count; ++i) {
    if (it->candidates[i].predicted < least) least = it->candidates[i].predicted;
  }
  return least;
}

static void begin_stage(struct gl_tuner* it, unsigned stage) {
  it->stage = stage;
  it->trial = 0;
  it->filled = 0;
  for (unsigned i = 0; i < GL_TRIALS; ++i) it->ns[i] = it->bytes[i] = 0;
}

static void begin_round(struct gl_tuner* it) {
  begin_stage(it, 0);
  it->all_count = it->tries;
  for (unsigned i = 0; i < it->tries; ++i) {
    it->all[i] = it->tried[i];
    it->knows[i] = 0;
  }
  it->state = it->tries > 1 ? GL_TUNER_TRYING : GL_TUNER_SETTLED;
  if (it->tries <= 1) it->left = UINT64_MAX;
}

// Chooses the candidates of the first round: the baseline and the best prediction. If the best prediction is exact, the
// best candidate that rounds is added, or the reverse. One more candidate is added, with another strategy if there is
// one.
static void choose_first(struct gl_tuner* it) {
  const double least = least_predicted(it);
  const struct wanted any = {.most = GL_TRIAL_UNKNOWN};
  unsigned candidate = 0;
  it->tries = 0;
  if (best_of(it, &any, &candidate)) {
    const struct wanted other = {
        .by_exact = true, .exact = !it->candidates[candidate].exact, .most = kHopeless * least};
    const struct wanted likely = {.most = kUnlikely * least};
    const struct wanted strategy = {.new_strategy = true, .most = kUnlikely * least};
    try_candidate(it, 0);
    try_candidate(it, candidate);
    if (best_of(it, &other, &candidate)) try_candidate(it, candidate);
    if (best_of(it, &strategy, &candidate) || best_of(it, &likely, &candidate)) try_candidate(it, candidate);
  }
}

// Returns the measured time of a candidate. If there is none, scales the chosen candidate's time by the two
// predictions.
static double expected_time(const struct gl_tuner* it, unsigned candidate) {
  const struct gl_timed_candidate* const row = &it->candidates[candidate];
  const struct gl_timed_candidate* const chosen = &it->candidates[it->chosen];
  if (row->measured > 0) return row->measured;
  return chosen->predicted > 0 ? chosen->measured * row->predicted / chosen->predicted : chosen->measured;
}

// Chooses the candidates of a later round: the chosen one, the baseline, and one that was not tried yet, else the
// fastest other one.
static void choose_next(struct gl_tuner* it) {
  it->tries = 0;
  try_candidate(it, it->chosen);
  try_candidate(it, 0);
  const struct wanted fresh = {.unmeasured = true, .most = kUnlikely * it->candidates[it->chosen].predicted};
  unsigned candidate = 0;
  bool found = best_of(it, &fresh, &candidate);
  for (unsigned i = 0; !found && i < it->count; ++i) {
    if (is_tried(it, i) || it->candidates[i].measured <= 0) continue;
    if (is_tried(it, candidate) || it->candidates[i].measured < it->candidates[candidate].measured) candidate = i;
  }
  try_candidate(it, candidate);
}

// Returns whether a candidate needs no more trials: it took more than kLost times as long as the best one, and was not
// predicted to be faster.
static bool has_lost(const struct gl_tuner* it, unsigned candidate, unsigned best, double time, double least) {
  return time > kLost * least && it->candidates[candidate].predicted >= it->candidates[best].predicted;
}

// Returns the number of trials of a candidate in a round, if it takes as long as expected.
static unsigned trials_ahead(const struct gl_tuner* it, unsigned candidate, double time, double own) {
  unsigned trials = kTrials[0];
  if (has_lost(it, candidate, it->chosen, time, own)) return trials;
  trials += kTrials[1];
  return time > kClose * own ? trials : trials + kTrials[2];
}

// Sets the number of operations until the next round, so that trials cost no more than their share of the time.
static void next_pause(struct gl_tuner* it) {
  choose_next(it);
  const double own = it->candidates[it->chosen].measured;
  double more = 0;
  for (unsigned i = 0; i < it->tries; ++i) {
    const double each = expected_time(it, it->tried[i]);
    if (each > own) more += trials_ahead(it, it->tried[i], each, own) * (each - own);
  }
  double operations = GL_TRIAL_PAUSE;
  if (own > 0 && more / own / kTrialShare > operations) operations = more / own / kTrialShare;
  it->left = operations < (double)kLongestPause ? (uint64_t)operations : kLongestPause;
  if (it->tries <= 1) it->left = UINT64_MAX;
}

void gl_tuner_begin(struct gl_tuner* it) {
  it->predicted = it->frozen = false;
  it->state = GL_TUNER_TRYING;
  it->chosen = 0;
  it->round = 0;
  it->all_count = 0;
  it->tried[0] = 0;
  it->tries = 1;
  it->left = 0;
  it->operations = 0;
  it->changes = 0;
  for (unsigned i = 0; i < it->count; ++i) it->candidates[i].measured = 0;
  begin_stage(it, 0);
}

void gl_tuner_predict(struct gl_tuner* it) {
  if (it->predicted) return;
  it->predicted = true;
  // The first trial has begun before there were predictions, with the baseline. Each first round begins with the
  // baseline, so the figures of that trial are kept.
  const unsigned trial = it->trial;
  const uint64_t filled = it->filled;
  const double ns = it->ns[0];
  const double bytes = it->bytes[0];
  choose_first(it);
  begin_round(it);
  if (it->state != GL_TUNER_TRYING) return;
  it->trial = trial;
  it->filled = filled;
  it->ns[0] = ns;
  it->bytes[0] = bytes;
}

// Returns the candidate and the trial of an operation. The trial goes on until it has the elements of one tensor.
static struct gl_selection next_trial(struct gl_tuner* it, uint64_t count, uint64_t whole) {
  const struct gl_selection turn = {
      .candidate = it->tried[place_of(it, it->trial)], .trial = (int)it->trial, .round = it->round};
  it->filled += count;
  if (it->filled >= whole) {
    it->filled = 0;
    ++it->trial;
  }
  return turn;
}

enum gl_turn gl_tuner_next(struct gl_tuner* it, uint64_t count, uint64_t whole, struct gl_selection* turn) {
  if (!it->frozen && !it->predicted && it->operations > 0 && it->trial > 0) return GL_TURN_PREDICT;
  if (it->state == GL_TUNER_SETTLED && !it->frozen && it->left == 0) {
    choose_next(it);
    ++it->round;
    begin_round(it);
  }
  if (it->predicted && it->state == GL_TUNER_TRYING && it->trial == trials_of(it)) it->state = GL_TUNER_AGREEING;
  if (it->state == GL_TUNER_AGREEING) return GL_TURN_AGREE;
  ++it->operations;
  if (it->state == GL_TUNER_TRYING && !it->frozen) {
    *turn = next_trial(it, count, whole);
    return GL_TURN_GO;
  }
  *turn = (struct gl_selection){.candidate = it->chosen, .trial = -1, .round = it->round};
  // A round does not begin between two pieces of a tensor.
  it->filled += count;
  if (it->filled >= whole) {
    it->filled = 0;
    if (it->left != UINT64_MAX && it->left > 0) --it->left;
  }
  return GL_TURN_GO;
}

void gl_tuner_note(struct gl_tuner* it, const struct gl_selection* turn, double ns, double bytes) {
  if (turn->trial < 0 || turn->round != it->round || it->state == GL_TUNER_SETTLED) return;
  // The time of an operation is unknown if it ended together with the one before it.
  if (turn->trial >= GL_TRIALS || !(ns > 0) || !(bytes > 0)) return;
  it->ns[turn->trial] += ns;
  it->bytes[turn->trial] += bytes;
}

void gl_tuner_give(const struct gl_tuner* it, bool greatest, double times[GL_TRIALS]) {
  for (unsigned i = 0; i < GL_TRIALS; ++i) {
    times[i] = it->bytes[i] > 0 ? it->ns[i] / it->bytes[i] : (greatest ? -1 : GL_TRIAL_UNKNOWN);
  }
}

// Adds the times that ranks have agreed on to the known times of the candidate at this index of `tried`.
static void learn(struct gl_tuner* it, const double times[GL_TRIALS], unsigned place) {
  double* const known = it->known[place];
  for (unsigned trial = 0; trial < trials_of(it); ++trial) {
    const double time = times[trial];
    if (place_of(it, trial) != place || !(time >= 0) || time >= GL_TRIAL_UNKNOWN) continue;
    if (it->knows[place] == GL_TRIALS) continue;
    unsigned at = it->knows[place]++;
    for (; at > 0 && known[at - 1] > time; --at) known[at] = known[at - 1];
    known[at] = time;
  }
  // The measured time is the median, or the lesser of two middle values. It is 0 if no time is known.
  const unsigned count = it->knows[place];
  const double middle = count > 0 ? known[(count - 1) / 2] : 0;
  it->candidates[it->tried[place]].measured = count > 0 && middle < 1e-9 ? 1e-9 : middle;
}

enum liking { kAny, kLikeBaseline, kExact };

// Returns the fastest candidate of this round: of all (kAny), of those with the baseline's strategy (kLikeBaseline), or
// of the exact ones (kExact). Returns GL_MAX_CANDIDATES if there is none.
static unsigned fastest(const struct gl_tuner* it, enum liking liking) {
  unsigned best = GL_MAX_CANDIDATES;
  for (unsigned i = 0; i < it->all_count; ++i) {
    const unsigned candidate = it->all[i];
    const struct gl_timed_candidate* const row = &it->candidates[candidate];
    if (row->measured <= 0 || (liking == kExact && !row->exact)) continue;
    if (liking == kLikeBaseline && row->strategy != it->candidates[0].strategy) continue;
    if (best == GL_MAX_CANDIDATES || row->measured < it->candidates[best].measured) best = candidate;
  }
  return best;
}

static bool is_in_question(const struct gl_tuner* it, unsigned candidate, unsigned best) {
  if (best == GL_MAX_CANDIDATES) return it->stage == 0;
  const double time = it->candidates[candidate].measured;
  const double least = it->candidates[best].measured;
  return it->stage == 0 ? !has_lost(it, candidate, best, time, least) : time > 0 && time <= kClose * least;
}

static void drop(struct gl_tuner* it, unsigned place) {
  --it->tries;
  for (unsigned i = place; i < it->tries; ++i) {
    it->tried[i] = it->tried[i + 1];
    it->knows[i] = it->knows[i + 1];
    memcpy(it->known[i], it->known[i + 1], sizeof(it->known[i]));
  }
}

// Begins the next stage, with the candidates that are still in question. In the last stage, these are the two fastest.
// Returns false if fewer than two are left, or if this was the last stage.
static bool begin_next_stage(struct gl_tuner* it) {
  if (it->stage + 1 == kStages) return false;
  const unsigned best = fastest(it, kAny);
  for (unsigned i = it->tries; i-- > 0;) {
    if (!is_in_question(it, it->tried[i], best)) drop(it, i);
  }
  while (it->stage + 2 == kStages && it->tries > 2) {
    unsigned slowest = 0;
    for (unsigned i = 1; i < it->tries; ++i) {
      if (it->candidates[it->tried[i]].measured > it->candidates[it->tried[slowest]].measured) slowest = i;
    }
    drop(it, slowest);
  }
  if (it->tries < 2) return false;
  ++it->round;
  begin_stage(it, it->stage + 1);
  it->state = GL_TUNER_TRYING;
  return true;
}

// Returns the candidate to choose: the fastest, or one that takes at most 1 / kWorth times as long. Among these, the
// baseline is preferred, then an exact one, then one with the baseline's strategy.
static unsigned choice(const struct gl_tuner* it) {
  const unsigned best = fastest(it, kAny);
  if (best == GL_MAX_CANDIDATES) return 0;
  const double most = it->candidates[best].measured / kWorth;
  const double baseline = is_among(it->all, it->all_count, 0) ? it->candidates[0].measured : 0;
  if (baseline > 0 && baseline <= most) return 0;
  static const enum liking likings[] = {kExact, kLikeBaseline};
  for (unsigned i = 0; i < sizeof(likings) / sizeof(likings[0]); ++i) {
    const unsigned candidate = fastest(it, likings[i]);
    if (candidate != GL_MAX_CANDIDATES && it->candidates[candidate].measured <= most) return candidate;
  }
  return best;
}

static void settle(struct gl_tuner* it) {
  const unsigned before = it->chosen;
  it->chosen = choice(it);
  it->changes += it->chosen != before ? 1 : 0;
  it->state = GL_TUNER_SETTLED;
  it->filled = 0;
  next_pause(it);
}

void gl_tuner_take(struct gl_tuner* it, const double times[GL_TRIALS]) {
  if (it->state != GL_TUNER_AGREEING) return;
  for (unsigned place = 0; place < it->tries; ++place) learn(it, times, place);
  if (!begin_next_stage(it)) settle(it);
}

bool gl_tuner_alone(const struct gl_tuner* it) {
  if (it->frozen || it->filled > 0) return false;
  return it->state == GL_TUNER_TRYING || (it->state == GL_TUNER_SETTLED && it->left == 0);
}

bool gl_tuner_best(const struct gl_tuner* it, bool exact, unsigned* candidate) {
  bool found = false;
  for (unsigned pass = 0; pass < 2 && !found; ++pass) {
    for (unsigned i = 0; i < it->count; ++i) {
      const struct gl_timed_candidate* const row = &it->candidates[i];
      const double time = pass == 0 ? row->measured : row->predicted;
      if (row->exact != exact || (pass == 0 && time <= 0)) continue;
      if (!found || time < (pass == 0 ? it->candidates[*candidate].measured : it->candidates[*candidate].predicted))
        *candidate = i;
      found = true;
    }
  }
  return found;
}
