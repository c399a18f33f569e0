// job.cc - an operation on all ranks: its tensors, and the results that it must have
#include "tests/collectives/exchange/job.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/random.h"
#include "tests/compress/test_floats.h"

namespace gradlane::test {
namespace {

constexpr uint8_t kUntouched = 0xa5;
constexpr size_t kChunk = 8192;  // floats that go through a codec at a time; the results do not depend on it

bool delivered(OpKind kind) { return kind == OpKind::kGather || kind == OpKind::kScatter || kind == OpKind::kAllToAll; }
bool shares(OpKind kind) { return kind == OpKind::kReduceScatter || kind == OpKind::kAllGather || delivered(kind); }
bool sums(OpKind kind) { return kind == OpKind::kAllReduce || kind == OpKind::kReduceScatter; }

// Returns values of a Laplace distribution of scale 1, with outliers. Random floats are made from them, because a
// logarithm for each would take long.
const std::vector<float>& laplace() {
  static const std::vector<float> table = [] {
    std::vector<float> values(size_t{1} << 16);
    Random random(1);
    for (float& value : values) {
      const double uniform = (static_cast<double>(random.next() >> 11) + 1) * 0x1p-53;
      const double size = -std::log(uniform) * (random.chance(0.001) ? 500 : 1);
      value = static_cast<float>(random.chance(0.5) ? size : -size);
    }
    return values;
  }();
  return table;
}

// Returns whether elements of fp16 or bf16 go through a codec. Its results are those of uncompressed elements.
bool is_packed(const JobSpec& spec) { return is_half(spec.type) && spec.codec == "pack"; }

float canonical(float sum) { return std::isnan(sum) ? float_of(0x7fc00000) : sum; }

// Returns the multiple of 2^(1-b) that stands for a float.
float on_lattice(unsigned b, float x) {
  if (!(std::fabs(x) < std::ldexp(1.0F, 24 - static_cast<int>(b)))) return x;
  const int exponent = 1 - static_cast<int>(b);
  return std::ldexp(std::nearbyint(std::ldexp(x, -exponent)), exponent);
}

float float_at(const uint8_t* bytes, size_t i) {
  float value;
  std::memcpy(&value, bytes + i * sizeof(float), sizeof(float));
  return value;
}

template <class Word>
std::string hex(Word word) {
  std::string text;
  for (size_t i = 2 * sizeof(word); i-- > 0;) text += "0123456789abcdef"[word >> (4 * i) & 15];
  return text;
}

}  // namespace

std::ostream& operator<<(std::ostream& out, const JobSpec& spec) {
  out << op_name(spec.kind) << " of " << spec.count << " " << element_name(spec.type);
  if (spec.type == ElementType::kFloat32 || is_packed(spec)) out << " as " << spec.codec;
  if (spec.average) out << ", average";
  if (has_root(spec.kind)) out << ", root " << spec.root;
  if (spec.feedback) out << ", feedback";
  if (!spec.strategy.empty()) out << ", " << spec.strategy;
  if (spec.pick != Reduction::kSum) out << ", " << reduction_name(spec.pick);
  if (spec.fill == Fill::kGroups) out << ", groups " << static_cast<int>(spec.groups);
  return out << (spec.fill == Fill::kWild ? ", wild" : "");
}

// ---- Job: inputs

Job::Job(const JobSpec& spec, unsigned world, uint64_t seed)
    : spec_(spec),
      world_(world),
      width_(element_bytes(spec.type)),
      elements_(spec.kind == OpKind::kBarrier ? 0 : spec.count * (shares(spec.kind) ? world : 1)),
      margin_(spec.fill == Fill::kWild ? kMargin + 1 : kMargin),
      tensors_(world, Bytes(margin_ + elements_ * width_ + kMargin, kUntouched)) {
  if (spec.type == ElementType::kFloat32) codec_ = find_codec(spec.codec);
  if (spec.kind == OpKind::kAllToAll) outs_ = tensors_;
  if (spec.feedback) residuals_.assign(world, std::vector<float>(elements_));
  renew(seed);
}

void Job::renew(uint64_t seed) {
  seed_ = seed;
  for (unsigned rank = 0; rank < world_; ++rank) fill(rank, seed);
  expect();
}

void Job::fill(unsigned rank, uint64_t seed) {
  if (spec_.type == ElementType::kFloat32) {
    fill_floats(rank, seed);
    return;
  }
  Random random(Random::mix(seed, rank));
  const bool numbers = spec_.fill == Fill::kGradients;
  const std::vector<float>& table = laplace();
  for (size_t i = 0; i < elements_; ++i) {
    uint64_t word = random.next();
    const double value = static_cast<double>(table[word & 0xffff]) * spec_.scale * (1 + 0x1p-30);
    if (numbers && spec_.type == ElementType::kFloat64) word = word_of(value);
    if (numbers && is_half(spec_.type)) word = word_of(half_format(spec_.type), value);
    std::memcpy(data(rank) + i * width_, &word, width_);
  }
}

void Job::fill_floats(unsigned rank, uint64_t seed) {
  if (spec_.fill == Fill::kWild) {
    Rng rng(Random::mix(seed, rank));
    const std::vector<float> floats = FloatSource(*codec_).make(rng, Kind::kMixed, elements_);
    if (elements_ != 0) std::memcpy(data(rank), floats.data(), elements_ * sizeof(float));
    return;
  }
  if (spec_.fill == Fill::kGroups) {
    std::vector<float> floats(elements_);
    fill_groups(spec_.groups, *codec_, Random::mix(seed, rank), floats);
    if (elements_ != 0) std::memcpy(data(rank), floats.data(), elements_ * sizeof(float));
    return;
  }
  const std::vector<float>& table = laplace();
  const auto scale = static_cast<float>(spec_.scale);
  uint32_t state = static_cast<uint32_t>(Random::mix(seed, rank));
  for (size_t i = 0; i < elements_; ++i) {
    state = state * 1664525 + 1013904223;
    const float value = table[state >> 16] * scale;
    std::memcpy(data(rank) + i * sizeof(float), &value, sizeof(float));
  }
}

Operation Job::operation(unsigned rank) {
  Operation operation;
  operation.kind = spec_.kind;
  operation.type = spec_.type;
  if (spec_.average) operation.reduction = Reduction::kAverage;
  operation.root = spec_.root;
  operation.count = spec_.count;
  operation.codec = rounds_once() || is_packed(spec_) ? find_codec(spec_.codec) : codec_;
  if (spec_.kind == OpKind::kAllToAll) operation.out = outs_[rank].data() + margin_;
  if (spec_.pick != Reduction::kSum) operation.reduction = spec_.pick;
  if (!spec_.strategy.empty()) operation.strategy = find_strategy(spec_.strategy);
  if (spec_.back != "raw" && codec_) operation.back_codec = find_codec(spec_.back);
  if (spec_.kind != OpKind::kBarrier) operation.data = data(rank);
  if (spec_.feedback) operation.residual = residuals_[rank].data();
  return operation;
}

// ---- Job: expected results

// Returns the block of `rank`. In an all-reduce, granules of 128 bytes are distributed evenly: block i begins with the
// granule at i/p of their number.
Job::Range Job::block(unsigned rank) const {
  if (spec_.kind == OpKind::kBroadcast) return {0, elements_};
  if (shares(spec_.kind)) return {rank * spec_.count, spec_.count};
  const size_t granule = 128 / width_;
  const size_t granules = (elements_ + granule - 1) / granule;
  const auto begin = [&](size_t i) { return std::min(granules * i / world_ * granule, elements_); };
  return {begin(rank), begin(rank + size_t{1}) - begin(rank)};
}

void Job::expect() {
  want_.assign(elements_ * width_, 0);
  if (spec_.feedback) expect_residuals();
  const StrategyId strategy = spec_.strategy.empty() ? StrategyId{} : find_strategy(spec_.strategy);
  if (spec_.kind == OpKind::kBroadcast) {
    expect_copy({0, elements_}, spec_.root);
  } else if (spec_.kind == OpKind::kReduce) {
    expect_reduce();
  } else if (delivered(spec_.kind)) {
    expect_deliveries();
  } else if (sums(spec_.kind) && spec_.pick != Reduction::kSum) {
    expect_pick({0, elements_});
  } else if (sums(spec_.kind) && strategy.kind == StrategyId::Kind::kRings && world_ > 1) {
    expect_rings_sum(strategy.group());
  } else if (sums(spec_.kind) && strategy.kind == StrategyId::Kind::kAggregator && world_ > 1) {
    expect_owner_sum({0, elements_}, strategy.root() + 1);
  } else if (sums(spec_.kind) && strategy.kind == StrategyId::Kind::kDirect && world_ > 1) {
    for (unsigned b = 0; b < world_; ++b) expect_owner_sum(block(b), b + 1);
  } else {
    for (unsigned b = 0; b < world_; ++b) {
      if (sums(spec_.kind)) {
        expect_sum(b);
      } else {
        expect_copy(block(b), b);
      }
    }
  }
}

void Job::expect_sum(unsigned b) {
  const Range range = block(b);
  if (!codec_ || codec_->id() == CodecId::kRaw) {
    expect_plain_sum(range, b);
  } else if (codec_->id() == CodecId::kFixed && spec_.fill != Fill::kWild) {
    expect_fixed_sum(range, b);
  } else {
    expect_coded_sum(range, b);
  }
  if (spec_.average) expect_average(range);
}

void Job::expect_plain_sum(Range range, unsigned b) {
  for (size_t i = range.first; i < range.first + range.count; ++i) {
    uint8_t* const out = want_.data() + i * width_;
    if (codec_) {
      float sum = float_at(data((b + 1) % world_), i);
      for (unsigned k = 2; k <= world_; ++k) sum = canonical(sum + float_at(data((b + k) % world_), i));
      std::memcpy(out, &sum, sizeof(sum));
      continue;
    }
    const auto word = [&](unsigned rank) {
      uint64_t value = 0;
      std::memcpy(&value, data(rank) + i * width_, width_);
      return value;
    };
    uint64_t sum = word((b + 1) % world_);
    for (unsigned k = 2; k <= world_; ++k) sum = reference_sum(spec_.type, sum, word((b + k) % world_));
    std::memcpy(out, &sum, width_);
  }
}

// Returns the contribution of a rank: its elements plus its residual of the previous operation.
std::vector<float> Job::contribution(unsigned rank, Range range) const {
  std::vector<float> floats(range.count);
  if (range.count != 0) std::memcpy(floats.data(), data(rank) + range.first * width_, range.count * width_);
  if (spec_.feedback) {
    for (size_t i = 0; i < range.count; ++i) floats[i] = canonical(floats[i] + residuals_[rank][range.first + i]);
  }
  return floats;
}

// The sum of the rounded contributions is exact, in any order of additions.
void Job::expect_fixed_sum(Range range, unsigned) {
  const int exponent = 1 - static_cast<int>(codec_->bits());
  std::vector<double> steps(range.count);  // starts at +0, so no sum is -0
  std::vector<float> floats;
  for (unsigned rank = 0; rank < world_; ++rank) {
    floats = contribution(rank, range);
    const auto per_unit = std::ldexp(1.0, -exponent);
    for (size_t i = 0; i < range.count; ++i) {
      steps[i] += std::nearbyint(static_cast<double>(floats[i]) * per_unit);
    }
  }
  for (size_t i = 0; i < range.count; ++i) {
    auto sum = canonical(static_cast<float>(std::ldexp(steps[i], exponent)));
    if (world_ == 1 && std::isnan(sum)) sum = floats[i];  // nothing was added
    std::memcpy(want_.data() + (range.first + i) * width_, &sum, sizeof(sum));
  }
}

void Job::expect_coded_sum(Range range, unsigned b) {
  for (size_t done = 0; done < range.count; done += kChunk) {
    const Range chunk = {range.first + done, std::min(kChunk, range.count - done)};
    Bytes sum = encode_all(*codec_, contribution((b + 1) % world_, chunk));
    Bytes next(codec_->max_bytes(chunk.count));
    for (unsigned k = 2; k <= world_; ++k) {
      const HopResult hop = codec_->hop(sum, contribution((b + k) % world_, chunk), next);
      EXPECT_EQ(hop.status, Status::kOk);
      EXPECT_EQ(hop.floats, chunk.count);
      sum.assign(next.begin(), next.begin() + static_cast<ptrdiff_t>(hop.bytes));
    }
    const std::vector<float> floats = decode_all(*codec_, sum, chunk.count);
    std::memcpy(want_.data() + chunk.first * width_, floats.data(), chunk.count * width_);
  }
}

// Expects elements that are not added, as decode(encode()) returns them.
void Job::expect_copy(Range range, unsigned from) {
  if (!codec_) {
    if (range.count == 0) return;
    std::memcpy(want_.data() + range.first * width_, data(from) + range.first * width_, range.count * width_);
    return;
  }
  for (size_t done = 0; done < range.count; done += kChunk) {
    const Range chunk = {range.first + done, std::min(kChunk, range.count - done)};
    const std::vector<float> in = contribution(from, chunk);
    const std::vector<float> floats = decode_all(*codec_, encode_all(*codec_, in), chunk.count);
    std::memcpy(want_.data() + chunk.first * width_, floats.data(), chunk.count * width_);
  }
}

void Job::expect_average(Range range) {
  for (size_t i = range.first; i < range.first + range.count; ++i) {
    uint8_t* const at = want_.data() + i * width_;
    if (spec_.type == ElementType::kFloat32) {
      const float average = canonical(float_at(at, 0) / static_cast<float>(world_));
      std::memcpy(at, &average, sizeof(average));
      continue;
    }
    uint64_t word = 0;
    std::memcpy(&word, at, width_);
    if (spec_.type == ElementType::kFloat64) {
      word = word_of(double_of(word) / world_);
    } else {
      word = word_of(half_format(spec_.type), value_of(half_format(spec_.type), word) / world_);
    }
    std::memcpy(at, &word, width_);
  }
}

// A residual is the contribution minus its rounded value.
void Job::expect_residuals() {
  want_residuals_.assign(world_, {});
  for (unsigned rank = 0; rank < world_; ++rank) {
    std::vector<float>& want = want_residuals_[rank];
    want = contribution(rank, {0, elements_});
    for (float& x : want) x = std::isfinite(x) ? x - on_lattice(codec_->bits(), x) : 0;
  }
}

// ---- Job: checks

testing::AssertionResult Job::same(const std::vector<Bytes>& tensors, unsigned rank, Range range,
                                   const Bytes& want) const {
  const uint8_t* const data = tensors[rank].data() + margin_;
  const size_t begin = range.first * width_;
  const size_t bytes = range.count * width_;
  if (bytes == 0 || std::memcmp(data + begin, want.data() + begin, bytes) == 0) {
    return testing::AssertionSuccess();
  }
  size_t i = range.first;
  while (std::memcmp(data + i * width_, want.data() + i * width_, width_) == 0) ++i;
  uint64_t is = 0, should = 0;
  std::memcpy(&is, data + i * width_, width_);
  std::memcpy(&should, want.data() + i * width_, width_);
  return testing::AssertionFailure() << spec_ << ", world " << world_ << ", seed " << seed_ << ": element " << i
                                     << " of rank " << rank << " is " << hex(is) << ", must be " << hex(should);
}

testing::AssertionResult Job::right(unsigned rank) const {
  const auto margins_stayed = [&](const Bytes& tensor) {
    const auto own = [](uint8_t byte) { return byte == kUntouched; };
    return std::all_of(tensor.begin(), tensor.begin() + static_cast<ptrdiff_t>(margin_), own) &&
           std::all_of(tensor.end() - static_cast<ptrdiff_t>(kMargin), tensor.end(), own);
  };
  if (!margins_stayed(tensors_[rank]) || (!outs_.empty() && !margins_stayed(outs_[rank]))) {
    return testing::AssertionFailure() << spec_ << ", world " << world_ << ": rank " << rank
                                       << " wrote outside of its tensor";
  }
  if (spec_.feedback) {
    const auto& is = residuals_[rank];
    const auto& must = want_residuals_[rank];
    for (size_t i = 0; i < elements_; ++i) {
      // 0 and -0 are equally good.
      if (is[i] == must[i]) continue;
      return testing::AssertionFailure() << spec_ << ", world " << world_ << ": residual " << i << " of rank " << rank
                                         << " is " << is[i] << ", must be " << must[i];
    }
  }
  if (!wants_.empty()) return own_right(rank);
  const bool one_block = spec_.kind == OpKind::kReduceScatter;
  return same(rank, one_block ? block(rank) : Range{0, elements_}, want_);
}

testing::AssertionResult Job::right() const {
  for (unsigned rank = 0; rank < world_; ++rank) {
    if (auto result = right(rank); !result) return result;
  }
  return testing::AssertionSuccess();
}

std::vector<Job> make_jobs(std::span<const JobSpec> specs, unsigned world, uint64_t seed) {
  std::vector<Job> jobs;
  jobs.reserve(specs.size());
  for (const JobSpec& spec : specs) jobs.emplace_back(spec, world, Random::mix(seed, jobs.size()));
  return jobs;
}

std::vector<JobSpec> all_kinds(unsigned world, size_t count, size_t share, const std::string& codec) {
  std::vector<JobSpec> specs = {
      {.kind = OpKind::kAllReduce, .count = count, .codec = codec},
      {.kind = OpKind::kReduceScatter, .count = share, .codec = codec},
      {.kind = OpKind::kBarrier},
      {.kind = OpKind::kAllGather, .count = share, .codec = codec},
      {.kind = OpKind::kAllReduce, .count = count, .codec = codec, .average = true},
      {.kind = OpKind::kReduceScatter, .count = share, .codec = codec, .average = true},
      {.kind = OpKind::kBroadcast, .count = count, .codec = codec, .root = 0},
  };
  for (const unsigned root : {world - 1, world / 2}) {
    if (root == 0 || root == specs.back().root) continue;
    specs.push_back({.kind = OpKind::kBroadcast, .count = count, .codec = codec, .root = root});
  }
  return specs;
}

Operation barrier() {
  Operation operation;
  operation.kind = OpKind::kBarrier;
  return operation;
}

}  // namespace gradlane::test
