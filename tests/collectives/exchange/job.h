// job.h - an operation of all ranks: its tensors, and what must come of them
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

// What the elements of a job look like.
enum class Fill : uint8_t {
  kGradients,  // Laplace, one in a thousand of it far out; integers: any bits
  kWild,       // any bits, boundaries of codecs, NaN, Inf; at an odd address
  kGroups,     // JobSpec::groups, of fp32 through `fixed`
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
  double scale = 0.01;               // of kGradients
  Groups groups = Groups::kZero;     // of kGroups
  std::string strategy{};            // none: none is named
  std::string back = "raw";          // of an aggregator
  Reduction pick = Reduction::kSum;  // or a minimum or maximum
};
std::ostream& operator<<(std::ostream& out, const JobSpec& spec);

// One operation on all ranks: their tensors, and what must be in them afterwards, computed without the exchange: block
// by block in the order of its strategy, by plain arithmetic for all types but fp32 and for `raw`, in whole steps for
// gradients that go through `fixed`, and otherwise by the codec.
class Job {
 public:
  Job(const JobSpec& spec, unsigned world, uint64_t seed);

  [[nodiscard]] const JobSpec& spec() const noexcept { return spec_; }
  [[nodiscard]] unsigned world() const noexcept { return world_; }
  [[nodiscard]] size_t bytes() const noexcept { return elements_ * width_; }  // of one rank's tensor

  // New tensors. Residuals stay, and count for what must come.
  void renew(uint64_t seed);

  [[nodiscard]] Operation operation(unsigned rank);

  // Whether the tensor of a rank, and its residual, are what must come; nothing around the tensor was touched.
  [[nodiscard]] testing::AssertionResult right(unsigned rank) const;
  [[nodiscard]] testing::AssertionResult right() const;  // on all ranks

 private:
  static constexpr size_t kMargin = 16;  // bytes on both sides that must stay

  struct Range {
    size_t first;
    size_t count;
  };
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
  // job_strategies.cc
  void expect_owner_sum(Range range, unsigned first);
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
  size_t elements_;  // of one rank's tensor
  size_t margin_;
  uint64_t seed_ = 0;
  std::vector<Bytes> tensors_;  // with a margin before and behind
  std::vector<std::vector<float>> residuals_;
  std::vector<Bytes> outs_;  // the same, where what comes out lies apart
  Bytes want_;
  std::vector<Bytes> wants_;   // by rank, where they differ
  std::vector<Bytes> inputs_;  // by rank, where they must stay
  std::vector<std::vector<float>> want_residuals_;
};

// Jobs for one network, as many as there are specs.
std::vector<Job> make_jobs(std::span<const JobSpec> specs, unsigned world, uint64_t seed);

// One of each kind, and more where they differ by parameters: `count` elements of fp32, and for those kinds where each
// rank has a share, `share` in each.
std::vector<JobSpec> all_kinds(unsigned world, size_t count, size_t share, const std::string& codec);

// The same of those kinds that only `direct` can do.
std::vector<JobSpec> direct_kinds(unsigned world, size_t count, size_t share, const std::string& codec);

[[nodiscard]] Operation barrier();

}  // namespace gradlane::test
