// checksum.c - checksums of blocks of a sum (any thread; no context)
//
// A tile has kTileRows rows of kColumns elements. Within a tile, 32 bits are enough. One vector takes the numbers of
// all rows, and another takes the first vector after each row: so the number in row i of R counts R - i times.
#include "client/library/checksum.h"

#include <stdbool.h>
#include <string.h>

enum { kColumns = 16, kTileRows = 16, kTile = kColumns * kTileRows };
// Largest sum, in steps, that can be recovered from its average in fp32.
enum { kLargest = 1 << 22 };
// Adding this number rounds to the nearest whole number, ties to even, and leaves it in the lower bits.
static const float kMagic = 0x1.8p23F;
static const uint32_t kMagicBits = 0x4b400000;

typedef float floats __attribute__((vector_size(4 * kColumns)));
typedef uint32_t words __attribute__((vector_size(4 * kColumns)));
typedef int32_t numbers __attribute__((vector_size(4 * kColumns)));

struct job {
  float scale;
  float step;
  float divisor;
  numbers limit;  // bits of the largest magnitude, in steps
};

struct state {
  uint64_t sums[kColumns];
  uint64_t rows[kColumns];  // sums of number times row
  uint64_t row;             // first row of the next tile
  numbers unfit;            // not 0: a number is beyond the limit, or not on the lattice
};

// The kinds of values in a pass.
enum kind { kContribution, kWithResidual, kResult, kAverage };

#define INLINE static inline __attribute__((always_inline))

INLINE void load(const float* from, floats* to) { memcpy(to, from, sizeof(*to)); }

INLINE void take_tile(const struct job* job, enum kind kind, const float* data, const float* residual,
                      struct state* state) {
  words sums = {0};
  words prefixes = {0};
  numbers unfit = {0};
  for (unsigned row = 0; row < kTileRows; ++row) {
    floats value;
    load(data + (size_t)row * kColumns, &value);
    const floats given = value;
    if (kind == kWithResidual) {
      floats more;
      load(residual + (size_t)row * kColumns, &more);
      value += more;
    }
    value *= job->scale;
    if (kind == kAverage) value *= job->divisor;
    // NaN has larger bits than all numbers.
    unfit |= ((numbers)value & 0x7fffffff) > job->limit;
    const floats shifted = value + kMagic;
    if (kind >= kResult) {
      floats expected = (shifted - kMagic) * job->step;
      if (kind == kAverage) expected /= job->divisor;
      unfit |= (numbers)expected ^ (numbers)given;  // zeros on the lattice are +0
    }
    sums += (words)shifted - kMagicBits;
    prefixes += sums;
  }
  state->unfit |= unfit;
  for (unsigned lane = 0; lane < kColumns; ++lane) {
    const uint64_t sum = (uint64_t)(int32_t)sums[lane];
    const uint64_t prefix = (uint64_t)(int32_t)prefixes[lane];
    state->sums[lane] += sum;
    state->rows[lane] += (state->row + kTileRows) * sum - prefix;
  }
  state->row += kTileRows;
}

INLINE void take_all(const struct job* job, enum kind kind, const float* data, const float* residual, size_t count,
                     struct state* state) {
  for (; count >= kTile; count -= kTile) {
    take_tile(job, kind, data, residual, state);
    data += kTile;
    if (kind == kWithResidual) residual += kTile;
  }
  if (count == 0) return;
  float last[2][kTile] = {{0}};
  memcpy(last[0], data, count * sizeof(float));
  if (kind == kWithResidual) memcpy(last[1], residual, count * sizeof(float));
  take_tile(job, kind, last[0], last[1], state);
}

INLINE void take_kind(const struct job* job, enum kind kind, const float* data, const float* residual, size_t count,
                      struct state* state) {
  switch (kind) {
    case kContribution:
      take_all(job, kContribution, data, residual, count, state);
      return;
    case kWithResidual:
      take_all(job, kWithResidual, data, residual, count, state);
      return;
    case kResult:
      take_all(job, kResult, data, residual, count, state);
      return;
    case kAverage:
      take_all(job, kAverage, data, residual, count, state);
      return;
  }
}

typedef void pass(const struct job* job, enum kind kind, const float* data, const float* residual, size_t count,
                  struct state* state);

#ifdef __x86_64__
__attribute__((target("avx512f,avx512vl,avx512dq"))) static void in_avx512(const struct job* job, enum kind kind,
                                                                           const float* data, const float* residual,
                                                                           size_t count, struct state* state) {
  take_kind(job, kind, data, residual, count, state);
}
__attribute__((target("avx2"))) static void in_avx2(const struct job* job, enum kind kind, const float* data,
                                                    const float* residual, size_t count, struct state* state) {
  take_kind(job, kind, data, residual, count, state);
}
#endif
static void in_any(const struct job* job, enum kind kind, const float* data, const float* residual, size_t count,
                   struct state* state) {
  take_kind(job, kind, data, residual, count, state);
}

static pass* best(void) {
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) return in_avx512;
  if (__builtin_cpu_supports("avx2")) return in_avx2;
#endif
  return in_any;
}

static struct gl_checksum checksum(struct job* job, float limit, enum kind kind, const float* data,
                                   const float* residual, size_t count) {
  int32_t bits;
  memcpy(&bits, &limit, sizeof(bits));
  job->limit = (numbers){0} + bits;
  struct state state;
  memset(&state, 0, sizeof(state));
  best()(job, kind, data, residual, count, &state);
  struct gl_checksum found = {0};
  for (unsigned lane = 0; lane < kColumns; ++lane) {
    found.sum += state.sums[lane];
    found.places += kColumns * state.rows[lane] + lane * state.sums[lane];
    if (state.unfit[lane] != 0) found.unfit = 1;
  }
  return found;
}

struct gl_checksum gl_checksum_of_contribution(const struct gl_lattice* lattice, const float* data,
                                               const float* residual, size_t count) {
  struct job job = {.scale = lattice->steps_per_one};
  const float limit = (float)(kLargest / lattice->ranks);
  return checksum(&job, limit, residual != NULL ? kWithResidual : kContribution, data, residual, count);
}

struct gl_checksum gl_checksum_of_result(const struct gl_lattice* lattice, const float* data, size_t count) {
  struct job job = {.scale = lattice->steps_per_one, .divisor = (float)lattice->divisor};
  // Averages over 2^n ranks are exact: they have a smaller step.
  const bool divides = (lattice->divisor & (lattice->divisor - 1)) != 0;
  if (!divides) job.scale *= job.divisor;
  job.step = 1 / job.scale;
  return checksum(&job, (float)kLargest, divides ? kAverage : kResult, data, NULL, count);
}
