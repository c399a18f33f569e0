// stochastic.h - selection of codec fixed:b,stochastic: floats are rounded up or down to a multiple of the step at
// random, so that on average the result is the float
#pragma once

#include "compress/codecs/random_unit.h"
#include "compress/selection.h"

namespace gradlane {
namespace {

class Stochastic {
 public:
  explicit Stochastic(const CodecParams& p)
      : random_(p.own_seed), step_(all(p.step)), steps_per_one_(all(p.steps_per_one)), exact_(all(p.exact)) {}

  GRADLANE_INLINE Floats operator()(const Floats& x, uint64_t position) const {
    const Floats size = abs(x);
    const Floats steps = size * steps_per_one_;
    const Floats below = whole(steps);
    const Mask up = to_unit_interval(random_.words(position)) < steps - below;
    const Floats chosen = (below + only(up, all(1.0F))) * step_;
    return choose(size < exact_, signed_as(x, chosen), x);
  }

  void select(const SelectJob& job) const {
    each(job.floats, [&](size_t i, size_t count) GRADLANE_INLINE_LAMBDA {
      store((*this)(load(job.in + i, count), job.position + i), job.out + i, count);
    });
  }

 private:
  static GRADLANE_INLINE Floats whole(const Floats& v) {
    return lanes_of<float>([](auto a) GRADLANE_INLINE_LAMBDA { return hn::Floor(a); }, v);
  }

  Random random_;
  Floats step_, steps_per_one_, exact_;
};

}  // namespace
}  // namespace gradlane
