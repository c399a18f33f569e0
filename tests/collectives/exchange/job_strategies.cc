// job_strategies.cc - the expected results of operations that do not use the ring
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "compress/exact_sum.h"
#include "sim/rounded_once.h"
#include "tests/collectives/exchange/job.h"
#include "tests/compress/test_floats.h"

namespace gradlane::test {
namespace {

uint64_t word_in(const uint8_t* at, size_t width) {
  uint64_t word = 0;
  std::memcpy(&word, at, width);
  return word;
}

float float_in(const uint8_t* at) {
  float value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

float one_nan(float sum) { return std::isnan(sum) ? float_of(0x7fc00000) : sum; }

}  // namespace

// Returns part `part` of a range whose granules are distributed evenly among `parts`.
Job::Range Job::spread(Range range, unsigned parts, unsigned part) const {
  const size_t granule = 128 / width_;
  const size_t granules = (range.count + granule - 1) / granule;
  const auto begin = [&](size_t i) { return std::min(granules * i / parts * granule, range.count); };
  return {range.first + begin(part), begin(part + size_t{1}) - begin(part)};
}

// Returns the contribution of a rank as other ranks receive it.
Bytes Job::rounded(unsigned rank, Range range) const {
  Bytes bytes(range.count * width_);
  if (range.count == 0) return bytes;
  if (!codec_) {
    std::memcpy(bytes.data(), data(rank) + range.first * width_, bytes.size());
    return bytes;
  }
  const std::vector<float> in = contribution(rank, range);
  const std::vector<float> out = decode_all(*codec_, encode_all(*codec_, in), range.count);
  std::memcpy(bytes.data(), out.data(), bytes.size());
  return bytes;
}

// Computes the sum of a range that an owner adds up: decode(encode()) of each contribution, their sum, and
// decode(encode()) of that. Without a codec, nothing is rounded.
void Job::expect_owner_sum(Range range, unsigned first) {
  if (range.count == 0) return;
  if (rounds_once()) return expect_rounded_once(range);
  Bytes sum = rounded(first % world_, range);
  for (unsigned k = 1; k < world_; ++k) {
    const Bytes next = rounded((first + k) % world_, range);
    for (size_t i = 0; i < range.count; ++i) {
      uint8_t* const at = sum.data() + i * width_;
      if (codec_) {
        const float value = one_nan(float_in(at) + float_in(next.data() + i * width_));
        std::memcpy(at, &value, width_);
      } else {
        const uint64_t word = reference_sum(spec_.type, word_in(at, width_), word_in(next.data() + i * width_, width_));
        std::memcpy(at, &word, width_);
      }
    }
  }
  if (codec_) {
    const bool aggregator = spec_.strategy.starts_with("aggregator");
    const Codec codec = aggregator ? find_codec(spec_.back) : *codec_;
    std::vector<float> floats(range.count);
    std::memcpy(floats.data(), sum.data(), sum.size());
    floats = decode_all(codec, encode_all(codec, floats), range.count);
    std::memcpy(sum.data(), floats.data(), sum.size());
  }
  std::memcpy(want_.data() + range.first * width_, sum.data(), sum.size());
  if (spec_.average) expect_average(range);
}

// Rounds sums or averages once. fp16 and bf16 go another way than the product. Its sums of fp32 and fp64 have a test of
// their own, exact_sum_test.cc.
void Job::expect_rounded_once(Range range) {
  const unsigned divisor = spec_.average ? world_ : 1;
  uint8_t* const out = want_.data() + range.first * width_;
  std::vector<const void*> in;
  for (unsigned rank = 0; rank < world_; ++rank) in.push_back(data(rank) + range.first * width_);
  if (spec_.type == ElementType::kFloat32) {
    return exact_sum(Isa::kScalar, ExactSumJob<float>{in.data(), world_, divisor, out, range.count});
  }
  if (spec_.type == ElementType::kFloat64) {
    return exact_sum(Isa::kScalar, ExactSumJob<double>{in.data(), world_, divisor, out, range.count});
  }
  const Format& format = half_format(spec_.type);
  for (size_t i = 0; i < range.count; ++i) {
    Expansion exact;
    double plain = -0.0;
    for (const void* const array : in) {
      const double value = value_of(format, word_in(static_cast<const uint8_t*>(array) + i * width_, width_));
      plain += value;
      if (std::isfinite(value)) exact.add(value);
    }
    const double sum = exact.odd();
    const uint64_t word = word_of(format, std::isfinite(plain) && sum != 0 ? sum / divisor : plain);
    std::memcpy(out + i * width_, &word, width_);
  }
}

// Returns the sum of the parts. The first part is encoded, and each other part is added in a hop.
Bytes Job::hops(std::span<const Bytes> parts, Range range) const {
  Bytes sum = parts.front();
  if (!codec_) {
    for (const Bytes& part : parts.subspan(1)) {
      for (size_t i = 0; i < range.count; ++i) {
        uint8_t* const at = sum.data() + i * width_;
        const uint64_t word = reference_sum(spec_.type, word_in(at, width_), word_in(part.data() + i * width_, width_));
        std::memcpy(at, &word, width_);
      }
    }
    return sum;
  }
  const auto floats = [&](const Bytes& bytes) {
    std::vector<float> values(range.count);
    std::memcpy(values.data(), bytes.data(), bytes.size());
    return values;
  };
  Bytes block = encode_all(*codec_, floats(sum));
  Bytes next(codec_->max_bytes(range.count));
  for (const Bytes& part : parts.subspan(1)) {
    const HopResult hop = codec_->hop(block, floats(part), next);
    EXPECT_EQ(hop.status, Status::kOk);
    EXPECT_EQ(hop.floats, range.count);
    block.assign(next.begin(), next.begin() + static_cast<ptrdiff_t>(hop.bytes));
  }
  const std::vector<float> out = decode_all(*codec_, block, range.count);
  std::memcpy(sum.data(), out.data(), sum.size());
  return sum;
}

// Share i of the tensor circulates in each group and ends at member i of the group. Block j of a share then circulates
// among these members and ends at the one of group j.
void Job::expect_rings_sum(unsigned group) {
  constexpr size_t kMost = 4096;  // elements at a time; whole granules of any type
  const unsigned groups = world_ / group;
  for (unsigned share = 0; share < group; ++share) {
    const Range of_share = spread({0, elements_}, group, share);
    for (unsigned block = 0; block < groups; ++block) {
      const Range whole = spread(of_share, groups, block);
      for (size_t done = 0; done < whole.count; done += kMost) {
        const Range range = {whole.first + done, std::min(kMost, whole.count - done)};
        std::vector<Bytes> across;
        for (unsigned g = 0; g < groups; ++g) {
          const unsigned first = (block + 1 + g) % groups * group;
          std::vector<Bytes> inside;
          for (unsigned k = 1; k <= group; ++k) {
            const unsigned rank = first + (share + k) % group;
            Bytes& part = inside.emplace_back(range.count * width_);
            if (codec_) {
              const std::vector<float> floats = contribution(rank, range);
              std::memcpy(part.data(), floats.data(), part.size());
            } else {
              std::memcpy(part.data(), data(rank) + range.first * width_, part.size());
            }
          }
          across.push_back(hops(inside, range));
        }
        const Bytes sum = hops(across, range);
        std::memcpy(want_.data() + range.first * width_, sum.data(), sum.size());
        if (spec_.average) expect_average(range);
      }
    }
  }
}

// The root has the sum. All other tensors stay unchanged.
void Job::expect_reduce() {
  const Range all = {0, elements_};
  if (spec_.pick != Reduction::kSum) {
    expect_pick(all);
  } else {
    expect_owner_sum(all, spec_.root + 1);
  }
  wants_.clear();
  for (unsigned rank = 0; rank < world_; ++rank) {
    wants_.push_back(rank == spec_.root ? want_ : Bytes(data(rank), data(rank) + bytes()));
  }
}

// Ranks get whole blocks. Only blocks of an all-to-all that are sent to other ranks go through a codec.
void Job::expect_deliveries() {
  wants_.clear();
  inputs_.clear();
  for (unsigned rank = 0; rank < world_; ++rank) {
    Bytes& want = wants_.emplace_back(data(rank), data(rank) + bytes());
    if (!outs_.empty()) inputs_.push_back(want);
    for (unsigned i = 0; i < world_; ++i) {
      const bool to_root = spec_.kind == OpKind::kGather && rank == spec_.root;
      const bool from_root = spec_.kind == OpKind::kScatter && i == rank;
      if (outs_.empty() && !to_root && !from_root) continue;
      const unsigned from = from_root ? spec_.root : i;
      const unsigned source = outs_.empty() ? i : rank;
      const Range range = {source * spec_.count, spec_.count};
      if (range.count == 0) continue;
      Bytes block(data(from) + range.first * width_, data(from) + (range.first + range.count) * width_);
      if (!outs_.empty() && from != rank) block = rounded(from, range);
      std::memcpy(want.data() + i * spec_.count * width_, block.data(), block.size());
    }
  }
}

// Compares a rank's tensor with its own expected result, because ranks have different ones.
testing::AssertionResult Job::own_right(unsigned rank) const {
  const Range all = {0, elements_};
  if (outs_.empty()) return same(rank, all, wants_[rank]);
  if (auto result = same(rank, all, inputs_[rank]); !result) return result << ", the input";
  return same(outs_, rank, all, wants_[rank]);
}

void Job::expect_pick(Range range) {
  for (size_t i = range.first; i < range.first + range.count; ++i) {
    uint64_t word = word_in(data(0) + i * width_, width_);
    for (unsigned rank = 1; rank < world_; ++rank) {
      word = reference_pick(spec_.type, spec_.pick == Reduction::kMax, word, word_in(data(rank) + i * width_, width_));
    }
    std::memcpy(want_.data() + i * width_, &word, width_);
  }
}

std::vector<JobSpec> direct_kinds(unsigned world, size_t count, size_t share, const std::string& codec) {
  std::vector<JobSpec> specs = {
      {.kind = OpKind::kAllToAll, .count = share, .codec = codec},
      {.kind = OpKind::kReduce, .count = count, .codec = codec, .average = true, .root = world / 3},
  };
  for (const OpKind kind : {OpKind::kReduce, OpKind::kGather, OpKind::kScatter}) {
    unsigned last = world;
    for (const unsigned root : {0U, world / 2, world - 1}) {
      if (root == last) continue;
      last = root;
      specs.push_back({.kind = kind, .count = kind == OpKind::kReduce ? count : share, .codec = codec, .root = root});
    }
  }
  return specs;
}

}  // namespace gradlane::test
