// rounds.cc - runs of the operations of a row, one after the other or several at a time, and the time that each takes
#include "tools/perf/rounds.h"

#include <cstring>
#include <numeric>

namespace gradlane {
namespace {

gradlane_reduction reduction_of(Reduction reduction) {
  if (reduction == Reduction::kMin) return GRADLANE_MIN;
  return reduction == Reduction::kMax ? GRADLANE_MAX : GRADLANE_SUM;
}

class Rounds {
 public:
  Rounds(Trainer& trainer, const PerfSettings& plan, const PerfCandidate& candidate, const PerfTensors& tensors)
      : trainer_(trainer),
        plan_(plan),
        candidate_(candidate),
        tensors_(tensors),
        strategy_(candidate.strategy.name()),
        codec_(candidate.codec.name()),
        reduction_(reduction_of(plan.reduction)),
        named_(plan.auto_strategy ? "auto"
               : candidate.named  ? strategy_.c_str()
                                  : nullptr) {}

  // Runs one operation, with the encoded contribution if `encoded`, and its result goes to `runs` if that is not empty.
  // Returns the nanoseconds from the end of a barrier to the end of the operation.
  int64_t one(unsigned number, const PerfStart& before, bool encoded, std::span<uint8_t> runs = {}) {
    std::memcpy(tensors_.tensors.front(), tensors_.input, tensors_.bytes);
    if (encoded) std::memset(tensors_.tensors.front(), 0xff, tensors_.bytes);  // NaN: a result that used it is wrong
    trainer_.barrier();
    if (before) before(number);
    const PerfClock::time_point start = PerfClock::now();
    if (encoded) {
      trainer_.run_encoded(tensors_.tensors.front(), tensors_.count, named_, codec_, tensors_.encoded, runs);
    } else if (tensors_.together == 1) {
      trainer_.run(candidate_.op, tensors_.tensors.front(), tensors_.count, plan_.type.type, named_, codec_, reduction_,
                   tensors_.states);
    } else {
      trainer_.run_together(tensors_.together, tensors_.tensors.front(), tensors_.count, plan_.type, named_, codec_,
                            reduction_);
    }
    return nanos_since(start);
  }

  PerfTimes several(unsigned operations, const PerfStart& before) {
    struct Flight {
      gradlane_request request = 0;
      PerfClock::time_point start;
    };
    std::vector<Flight> flights(tensors_.tensors.size());
    PerfTimes times;
    trainer_.barrier();
    const PerfClock::time_point begin = PerfClock::now();
    for (unsigned i = 0; i < operations + flights.size(); ++i) {
      Flight& flight = flights[i % flights.size()];
      if (flight.request != 0) {
        trainer_.wait(candidate_.op, flight.request);
        times.each.push_back(nanos_since(flight.start));
        flight.request = 0;
      }
      if (i >= operations) continue;
      void* const tensor = tensors_.tensors[i % flights.size()];
      std::memcpy(tensor, tensors_.input, tensors_.bytes);
      if (before) before(i);
      flight.start = PerfClock::now();
      flight.request =
          trainer_.start(candidate_.op, tensor, tensors_.count, plan_.type.type, named_, codec_, reduction_);
    }
    times.all = nanos_since(begin);
    return times;
  }

 private:
  Trainer& trainer_;
  const PerfSettings& plan_;
  const PerfCandidate& candidate_;
  const PerfTensors& tensors_;
  const StrategyName strategy_;
  const std::string codec_;
  const gradlane_reduction reduction_;
  const char* const named_;
};

}  // namespace

PerfTimes run_rounds(Trainer& trainer, const PerfSettings& plan, const PerfCandidate& candidate,
                     const PerfTensors& tensors, unsigned operations, const PerfStart& before) {
  Rounds rounds(trainer, plan, candidate, tensors);
  if (tensors.tensors.size() > 1) return rounds.several(operations, before);
  PerfTimes times;
  const bool encoded = !tensors.encoded.empty();
  for (unsigned i = 0; i < operations; ++i) {
    if (encoded) times.floats.push_back(rounds.one(i, before, false));
    if (!tensors.runs.empty()) times.runs.push_back(rounds.one(i, before, true, tensors.runs));
    times.each.push_back(rounds.one(i, before, encoded));
  }
  times.all = std::accumulate(times.each.begin(), times.each.end(), int64_t{0});
  return times;
}

}  // namespace gradlane
