// job.h - an operation on all ranks: its tensors, and the results that it must have
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include "collectives/operation.h"
#include "tests/collectives/exchange/plane_floats.h"
#include "tests/collectives/exchange/reference_elements.h"

namespace gradlane::test {

// Kinds of values of a job's elements.
enum class Fill : uint8_t {
  kGradients,  // Laplace distribution, one value in a thousand is an outlier; integers: any bits
  kWild,       // any bits, boundaries of codecs, NaN, Inf; at an odd address
  kGroups,     // fp32 groups of kind JobSpec::groups, sent through `fixed`
};

struct JobSpec {
  OpKind kind = OpKind::kAllReduce;
  size_t count = 0;  // as in Operation
  std::string codec = "raw";
  ElementType type = ElementType::kFloat32;
  bool average = false;
  unsigned root = 0;
  bool feedback = false;
  Fill fill = Fill::kGradients;
  double scale = 0.01;               // scale of kGradients
  Groups groups = Groups::kZero;     // groups of kGroups
  std::string strategy{};            // empty: no strategy is named
  std::string back = "raw";          // codec of an aggregator's results
  Reduction pick = Reduction::kSum;  // sum, minimum or maximum
};
std::ostream& operator<<(std::ostream& out, const JobSpec& spec);

// One operation on all ranks, with its tensors and the results that must be in them afterwards. The results are
// computed without the exchange, block by block in the order of the strategy. Plain arithmetic computes all types but
// fp32, and fp32 with `raw`. Gradients through `fixed` are added as whole numbers of steps. For everything else, the
// job calls the codec.
class Job {
 public:
  Job(const JobSpec& spec, unsigned world, uint64_t seed);

  [[nodiscard]] const JobSpec& spec() const noexcept { return spec_; }
  [[nodiscard]] unsigned world() const noexcept { return world_; }
  [[nodiscard]] size_t bytes() const noexcept { return elements_ * width_; }  // bytes of one rank's tensor

  // Fills the tensors again. Residuals stay, and count in the expected results.
  void renew(uint64_t seed);

  [[nodiscard]] Operation operation(unsigned rank);

  // Returns whether the tensor of a rank and its residual have the expected values, and nothing around the tensor was
  // changed.
  [[nodiscard]] testing::AssertionResult right(unsigned rank) const;
  [[nodiscard]] testing::AssertionResult right() const;  // the same for all ranks

 private:
  static constexpr size_t kMargin = 16;  // bytes before and after each tensor that must not change

  struct Range {
    size_t first;
    size_t count;
  };
  [[nodiscard]] bool rounds_once() const { return spec_.codec == "exact" && is_floating(spec_.type) && world_ > 1; }
  [[nodiscard]] Range block(unsigned rank) const;
  [[nodiscard]] uint8_t* data(unsigned rank) { return tensors_[rank].data() + margin_; }
  [[nodiscard]] const uint8_t* data(unsigned rank) const { return tensors_[rank].data() + margin_; }
  void fill(unsigned rank, uint64_t seed);
  void fill_floats(unsigned rank, uint64_t seed);
  void expect();
  void expect_sum(unsigned block);
  void expect_plain_sum(Range range, unsigned block);
  void expect_fixed_sum(Range range, unsigned block);
  void expect_coded_sum(Range range, unsigned block);
  void expect_copy(Range range, unsigned from);
  // The next functions are in job_strategies.cc.
  void expect_owner_sum(Range range, unsigned first);
  void expect_rounded_once(Range range);
  void expect_rings_sum(unsigned group);
  void expect_pick(Range range);
  void expect_reduce();
  void expect_deliveries();
  [[nodiscard]] testing::AssertionResult own_right(unsigned rank) const;
  [[nodiscard]] Bytes rounded(unsigned rank, Range range) const;
  [[nodiscard]] Bytes hops(std::span<const Bytes> parts, Range range) const;
  [[nodiscard]] Range spread(Range range, unsigned parts, unsigned part) const;
  void expect_average(Range range);
  void expect_residuals();
  [[nodiscard]] std::vector<float> contribution(unsigned rank, Range range) const;
  [[nodiscard]] testing::AssertionResult same(unsigned rank, Range range, const Bytes& want) const {
    return same(tensors_, rank, range, want);
  }
  [[nodiscard]] testing::AssertionResult same(const std::vector<Bytes>& tensors, unsigned rank, Range range,
                                              const Bytes& want) const;

  JobSpec spec_;
  unsigned world_;
  std::optional<Codec> codec_;
  size_t width_;
  size_t elements_;  // elements of one rank's tensor
  size_t margin_;
  uint64_t seed_ = 0;
  std::vector<Bytes> tensors_;  // tensors by rank, with margin_ bytes before and after each
  std::vector<std::vector<float>> residuals_;
  std::vector<Bytes> outs_;  // outputs by rank, with the same margins; empty if the results replace the inputs
  Bytes want_;
  std::vector<Bytes> wants_;   // expected tensors by rank, if ranks have different ones
  std::vector<Bytes> inputs_;  // inputs by rank, if they must not change
  std::vector<std::vector<float>> want_residuals_;
};

// Makes the jobs of one network, one per spec.
std::vector<Job> make_jobs(std::span<const JobSpec> specs, unsigned world, uint64_t seed);

// Returns jobs of all kinds, and several of kinds with parameters. Each has `count` elements of fp32, or `share`
// elements in each block of kinds in which each rank has a block.
std::vector<JobSpec> all_kinds(unsigned world, size_t count, size_t share, const std::string& codec);

// Returns jobs as all_kinds() does, of the kinds that only strategy `direct` supports.
std::vector<JobSpec> direct_kinds(unsigned world, size_t count, size_t share, const std::string& codec);

[[nodiscard]] Operation barrier();

}  // namespace gradlane::test
