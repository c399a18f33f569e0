// samples.h - what codec benchmarks measure with: data by name, and recordings of gradients
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "compress/codec.h"
#include "tools/bench/npy.h"
#include "tools/bench/quality.h"

namespace gradlane {

// A set of data: gradients of some ranks, one contribution of each.
class Samples {
 public:
  [[nodiscard]] const std::string& name() const { return name_; }
  // Whose mean vNMSE is about.
  [[nodiscard]] size_t ranks() const { return what_ == What::kSingle ? 1 : contributions_.size(); }

  // Floats of a benchmark's blocks, side by side in `out`: what comes to a rank, and what the rank adds. Blocks are
  // spread over a recording, and wrap around at its end.
  void fill_arriving(size_t block_floats, std::span<float> out) const;
  void fill_local(size_t block_floats, std::span<float> out) const;

  // Ratio: of single contributions, or of sums of all. vNMSE: of the mean of ranks().
  [[nodiscard]] Quality quality(const Codec& codec, size_t block_floats) const;

 private:
  friend std::vector<Samples> make_samples(const std::vector<std::string>& names);
  enum class What { kNamed, kSingle, kSum };

  Samples(std::string name, What what) : name_(std::move(name)), what_(what) {}
  [[nodiscard]] static Samples named(const std::string& name);
  [[nodiscard]] static std::vector<Samples> recorded(const std::string& path);
  void fill(size_t block_floats, std::span<float> out, size_t shift, bool sum) const;

  std::string name_;
  What what_;
  std::shared_ptr<const NpyArray> array_;  // of all sets of a recording
  Contributions contributions_;            // point into it
};

// `names` has those of data_names(), and paths of recordings, which end in ".npy": one contribution in each row
// (docs/study.md). A recording NAME.npy is "NAME", its single contributions, and "NAME xR", the sums of its R rows, if
// it has several. Throws SetupError for what is neither, files that are no recordings, and names that are there twice.
[[nodiscard]] std::vector<Samples> make_samples(const std::vector<std::string>& names);

}  // namespace gradlane
