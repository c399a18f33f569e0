// data.cc - inputs of the ranks of `gradlane perf`, and checks of the results
#include "tools/perf/data.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "base/random.h"
#include "sim/rounded_once.h"
#include "tools/perf/exact.h"

namespace gradlane {
namespace {

constexpr size_t kRun = SimInputs::kMaxRun;
// bytes; a longer tensor travels in parts, which are operations of their own
constexpr size_t kOnePart = size_t{64} << 20;

// Returns the codec that converts elements of 16 bits, or nothing for other types.
std::optional<Codec> converter_of(gradlane_type type) {
  if (type == GRADLANE_FLOAT16) return codec_of(FloatForm::kFp16, select_isa());
  if (type == GRADLANE_BFLOAT16) return codec_of(FloatForm::kBf16, select_isa());
  return std::nullopt;
}

// Converts elements of 16 bits to floats.
std::vector<float> widened(const Codec& converter, const uint8_t* elements, size_t count) {
  std::vector<float> floats(count);
  (void)converter.decode({elements, 2 * count}, floats);  // the lengths match, so it does not fail
  return floats;
}

// Computes the input of a rank: elements first, first + 1, ... Elements of 16 bits become floats of these values.
template <typename T>
void make_input(const SimInputs& inputs, uint64_t seed, unsigned rank, size_t first, std::span<T> out,
                const std::optional<Codec>& converter) {
  if constexpr (std::is_floating_point_v<T>) {
    const std::span<const float> values = inputs.values(rank, first, out.size());
    std::ranges::copy(values, out.begin());
    if constexpr (std::is_same_v<T, float>) {
      if (!converter) return;
      std::vector<uint8_t> halves(2 * out.size());
      (void)converter->encode(out, halves);
      (void)converter->decode(halves, out);
    }
  } else {
    const uint64_t stream = Random(seed + rank).next();
    for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<T>(Random(stream ^ (first + i)).next());
  }
}

// A result may differ from the true sum of x by relative * sum |x| + absolute. If `bounded` is false, it must only be
// finite.
struct Bound {
  double relative = 0;
  double absolute = 0;
  bool bounded = true;
};

// Returns how many roundings a sum of `shares` contributions has at most, by codecs whose sums are not exact. In a
// ring, each hop rounds. With an owner, each contribution is rounded once, and then the sum. With rings of rings, each
// hop in a ring rounds, and then each hop across the rings.
double roundings(const StrategyId& strategy, unsigned shares) {
  switch (strategy.kind) {
    case StrategyId::Kind::kRing:
      return shares;
    case StrategyId::Kind::kRings:
      return shares + shares / static_cast<double>(strategy.group());
    case StrategyId::Kind::kDirect:
    case StrategyId::Kind::kAggregator:
      break;
  }
  return shares + 1;
}

// Returns the bound for a sum of `shares` contributions; 1 is a copy. Codec::error() is the bound for one contribution.
// Each addition rounds relative to a partial sum, which is no larger than sum |x|. An aggregator's codec for the return
// path also rounds relative to sum |x|. `largest`: the largest magnitude of all inputs. An owner's rounding error may
// be in proportion to the largest magnitude of the complete sum.
Bound bound_of(const StrategyId& strategy, const PerfCodec& codec, gradlane_type type, unsigned shares,
               double largest) {
  const auto rounded = [shares](double unit) { return std::pow(1 + unit, shares + 1) - 1; };
  if (type == GRADLANE_FLOAT64) return shares == 1 ? Bound{} : Bound{rounded(0x1p-53), 0};
  if (codec.there.row().exact() && shares == 1) return {};
  const std::optional<Codec> converter = converter_of(type);
  const CodecError error = converter ? converter->error() : codec.there.error();
  const CodecError back = codec.back ? codec.back->error() : CodecError{};
  // With an automatic codec, the library may choose one that rounds in each hop.
  const bool exact = codec.there.exact_sums() && codec.automatic.empty();
  const double times = exact ? shares : roundings(strategy, shares);
  const double of_largest = error.of_largest * (exact ? shares : 2 * times * (1 + error.of_largest));
  return {rounded(std::max(error.relative, 0x1p-24)) + 2 * back.relative,
          times * error.absolute + back.absolute + largest * (of_largest + 2 * shares * back.of_largest),
          error.bounded && back.bounded};
}

// Returns the largest magnitude of all ranks' inputs.
double largest_of(const SimInputs& inputs, unsigned ranks, size_t count) {
  float largest = 0;
  for (unsigned rank = 0; rank < ranks; ++rank) {
    for (size_t done = 0; done < count; done += kRun) {
      for (const float x : inputs.values(rank, done, std::min(kRun, count - done))) {
        if (std::isfinite(x)) largest = std::max(largest, std::abs(x));
      }
    }
  }
  return static_cast<double>(largest);
}

// Returns the smaller or the larger value. Integers are signed, but bytes are not. -0 is less than +0.
template <typename T>
T pick(T a, T b, bool larger) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
    if (a == b) return std::signbit(a) == larger ? b : a;
    return (a > b) == larger ? a : b;
  } else if constexpr (sizeof(T) == 1) {
    return larger ? std::max(a, b) : std::min(a, b);
  } else {
    using Signed = std::make_signed_t<T>;
    return (static_cast<Signed>(a) > static_cast<Signed>(b)) == larger ? a : b;
  }
}

// Checks results. `result` has `count` elements. Its first element is element `first` of the tensor. count_wrong()
// counts elements that differ too much from the sum over the ranks `from` to `to` - 1.
template <typename T>
class Checker {
 public:
  Checker(const SimInputs& inputs, uint64_t seed, const StrategyId& strategy, const PerfCodec& codec,
          gradlane_type type, double largest)
      : inputs_(inputs),
        seed_(seed),
        strategy_(strategy),
        codec_(codec),
        type_(type),
        converter_(converter_of(type)),
        largest_(largest),
        input_(kRun),
        sum_(kRun),
        size_(kRun) {}

  size_t count_wrong(unsigned from, unsigned to, size_t first, const T* result, size_t count) {
    const Bound bound = bound_of(strategy_, codec_, type_, to - from, largest_);
    size_t wrong = 0;
    for (size_t done = 0; done < count; done += kRun) {
      const size_t n = std::min(kRun, count - done);
      if constexpr (std::is_floating_point_v<T>) {
        if (codec_.there.row().rounds_once && !converter_ && to - from > 1) {
          wrong += count_not_rounded_once(from, to, first + done, {result + done, n});
          continue;
        }
      }
      add_up(from, to, first + done, n);
      for (size_t i = 0; i < n; ++i) wrong += is_wrong(result[done + i], sum_[i], size_[i], bound) ? 1 : 0;
    }
    return wrong;
  }

  // Counts wrong elements of a sum over all ranks for which states are kept. `state_change`: the states before the sum
  // minus the states after it.
  size_t count_wrong_with_states(unsigned ranks, size_t first, const T* result, const double* state_change,
                                 size_t count) {
    constexpr double kRounding = 0x1p-20;  // relative rounding of sums, and of the state that a contribution leaves
    size_t wrong = 0;
    for (size_t done = 0; done < count; done += kRun) {
      const size_t n = std::min(kRun, count - done);
      add_up(0, ranks, first + done, n);
      for (size_t i = 0; i < n; ++i) {
        const double put_in = static_cast<double>(sum_[i]) + state_change[done + i];
        const double size = static_cast<double>(size_[i]) + std::abs(state_change[done + i]) + largest_;
        const double off = std::abs(static_cast<double>(result[done + i]) - put_in);
        wrong += off <= kRounding * size ? 0 : 1;
      }
    }
    return wrong;
  }

  // Counts elements that are not, bit by bit, the minimum or maximum over all ranks.
  size_t count_wrong_min_max(unsigned ranks, bool larger, size_t first, const T* result, size_t count) {
    std::vector<T> best(kRun);
    size_t wrong = 0;
    for (size_t done = 0; done < count; done += kRun) {
      const size_t n = std::min(kRun, count - done);
      for (unsigned rank = 0; rank < ranks; ++rank) {
        make_input<T>(inputs_, seed_, rank, first + done, {input_.data(), n}, converter_);
        for (size_t i = 0; i < n; ++i) best[i] = rank == 0 ? input_[i] : pick(best[i], input_[i], larger);
      }
      for (size_t i = 0; i < n; ++i) wrong += std::memcmp(&best[i], &result[done + i], sizeof(T)) != 0 ? 1 : 0;
    }
    return wrong;
  }

 private:
  // A type so wide that its own rounding does not matter. Integers wrap around, as they should.
  using Sum = std::conditional_t<std::is_same_v<T, float>, double,
                                 std::conditional_t<std::is_floating_point_v<T>, long double, uint64_t>>;

  void add_up(unsigned from, unsigned to, size_t first, size_t n) {
    std::fill_n(sum_.begin(), n, Sum{0});
    std::fill_n(size_.begin(), n, Sum{0});
    for (unsigned rank = from; rank < to; ++rank) {
      make_input<T>(inputs_, seed_, rank, first, {input_.data(), n}, converter_);
      for (size_t i = 0; i < n; ++i) {
        const Sum x = static_cast<Sum>(input_[i]);
        sum_[i] += x;
        if constexpr (std::is_floating_point_v<T>) size_[i] += std::abs(x);
      }
    }
  }

  // Counts elements that are not, bit by bit, the true sum rounded once.
  size_t count_not_rounded_once(unsigned from, unsigned to, size_t first, std::span<const T> result) {
    std::vector<std::vector<T>> terms(result.size());
    for (unsigned rank = from; rank < to; ++rank) {
      make_input<T>(inputs_, seed_, rank, first, {input_.data(), result.size()}, converter_);
      for (size_t i = 0; i < result.size(); ++i) terms[i].push_back(input_[i]);
    }
    size_t wrong = 0;
    for (size_t i = 0; i < result.size(); ++i) {
      const T expected = rounded_once<T>(terms[i], 1);
      wrong += std::memcmp(&expected, &result[i], sizeof expected) != 0 ? 1 : 0;
    }
    return wrong;
  }

  static bool is_wrong(T result, Sum sum, Sum size, const Bound& bound) {
    if constexpr (std::is_floating_point_v<T>) {
      if (!bound.bounded) return !std::isfinite(result);
      const Sum allowed = static_cast<Sum>(bound.relative) * size + static_cast<Sum>(bound.absolute);
      return !(std::abs(static_cast<Sum>(result) - sum) <= allowed);  // NaN is wrong, too
    } else {
      return result != static_cast<T>(sum);
    }
  }

  const SimInputs& inputs_;
  uint64_t seed_;
  const StrategyId& strategy_;
  const PerfCodec& codec_;
  gradlane_type type_;
  std::optional<Codec> converter_;
  double largest_;
  std::vector<T> input_;
  std::vector<Sum> sum_;
  std::vector<Sum> size_;  // sums of the magnitudes that were added: sum |x|
};

// Calls run(T{}) with the unsigned or floating type of the elements; with float for elements of 16 bits.
template <typename Run>
auto with_type(gradlane_type type, Run run) {
  switch (type) {
    case GRADLANE_FLOAT32:
    case GRADLANE_FLOAT16:
    case GRADLANE_BFLOAT16:
      return run(float{});
    case GRADLANE_FLOAT64:
      return run(double{});
    case GRADLANE_INT32:
      return run(uint32_t{});
    case GRADLANE_INT64:
      return run(uint64_t{});
    default:
      return run(uint8_t{});
  }
}

}  // namespace

PerfData::PerfData(const PerfSettings& plan, unsigned rank, unsigned world, bool apart)
    : plan_(plan), rank_(rank), world_(world), apart_(apart), inputs_(plan.data, plan.seed) {}

void PerfData::fill(void* tensor, size_t count) const {
  const std::optional<Codec> converter = converter_of(plan_.type.type);
  with_type(plan_.type.type, [&]<typename T>(T) {
    std::vector<T> run(kRun);
    for (size_t done = 0; done < count; done += kRun) {
      const std::span<T> elements = std::span(run).first(std::min(kRun, count - done));
      make_input<T>(inputs_, plan_.seed, rank_, done, elements, std::nullopt);
      uint8_t* const at = static_cast<uint8_t*>(tensor) + done * plan_.type.bytes;
      if constexpr (std::is_same_v<T, float>) {
        if (converter) {
          (void)converter->encode(elements, {at, 2 * elements.size()});
          continue;
        }
      }
      std::memcpy(at, elements.data(), elements.size_bytes());
    }
  });
}

size_t PerfData::count_wrong(PerfOp op, const StrategyId& strategy, const PerfCodec& codec, const void* result,
                             size_t count, bool divided) const {
  // count_inexact() skips sums beyond the codec's range. count_beyond() allows a difference, and so does not check
  // single bits.
  const size_t inexact = divided ? 0 : count_inexact(op, codec, result, count);
  return std::max(inexact, count_beyond(op, strategy, codec, result, count));
}

size_t PerfData::count_beyond(PerfOp op, const StrategyId& strategy, const PerfCodec& codec, const void* result,
                              size_t count) const {
  return with_type(plan_.type.type, [&]<typename T>(T) -> size_t {
    const double largest = std::is_same_v<T, float> ? largest_of(inputs_, world_, count) : 0;
    Checker<T> checker(inputs_, plan_.seed, strategy, codec, plan_.type.type, largest);
    const T* elements = static_cast<const T*>(result);
    std::vector<float> floats;
    if constexpr (std::is_same_v<T, float>) {
      if (const std::optional<Codec> converter = converter_of(plan_.type.type)) {
        floats = widened(*converter, static_cast<const uint8_t*>(result), count);
        elements = floats.data();
      }
    }
    const size_t block = count / world_;
    if (picks(plan_.reduction)) {
      const bool larger = plan_.reduction == Reduction::kMax;
      if (op == PerfOp::kAllReduce) return checker.count_wrong_min_max(world_, larger, 0, elements, count);
      return checker.count_wrong_min_max(world_, larger, rank_ * block, elements + rank_ * block, block);
    }
    switch (op) {
      case PerfOp::kAllReduce:
        return checker.count_wrong(0, world_, 0, elements, count);
      case PerfOp::kReduceScatter:
        return checker.count_wrong(0, world_, rank_ * block, elements + rank_ * block, block);
      case PerfOp::kBroadcast:
        return checker.count_wrong(0, 1, 0, elements, count);
      case PerfOp::kAllGather:
        break;
    }
    size_t wrong = 0;
    for (unsigned b = 0; b < world_; ++b) {
      wrong += checker.count_wrong(b, b + 1, b * block, elements + b * block, block);
    }
    return wrong;
  });
}

size_t PerfData::count_inexact(PerfOp op, const PerfCodec& codec, const void* result, size_t count) const {
  const bool sums = plan_.type.type == GRADLANE_FLOAT32 && reduces(perf_kind(op)) && !picks(plan_.reduction);
  if (!sums || codec.back || !codec.automatic.empty() || !apart_ || count * sizeof(float) > kOnePart) return 0;
  std::optional<ExactSums> exact =
      ExactSums::of(codec.there, inputs_, world_, count, largest_of(inputs_, world_, count));
  if (!exact) return 0;
  const size_t n = op == PerfOp::kAllReduce ? count : count / world_;
  const size_t first = op == PerfOp::kAllReduce ? 0 : rank_ * n;
  const float* const elements = static_cast<const float*>(result) + first;
  size_t wrong = 0;
  for (size_t done = 0; done < n; done += kRun) {
    wrong += exact->count_wrong(first + done, {elements + done, std::min(kRun, n - done)});
  }
  return wrong;
}

size_t PerfData::count_wrong_with_states(PerfOp op, const PerfCodec& codec, const float* result,
                                         const double* state_change, size_t count) const {
  Checker<float> checker(inputs_, plan_.seed, {}, codec, plan_.type.type, largest_of(inputs_, world_, count));
  const bool all = op == PerfOp::kAllReduce;
  const size_t n = all ? count : count / world_;
  const size_t first = all ? 0 : rank_ * n;
  return checker.count_wrong_with_states(world_, first, result + first, state_change + first, n);
}

}  // namespace gradlane
