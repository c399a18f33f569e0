// samples.h - data for codec benchmarks: generated data by name, and recordings of gradients
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

// A set of data: gradients of several ranks, one contribution of each.
class Samples {
 public:
  [[nodiscard]] const std::string& name() const { return name_; }
  // Returns the number of ranks whose mean is estimated for the vNMSE.
  [[nodiscard]] size_t ranks() const { return what_ == What::kSingle ? 1 : contributions_.size(); }

  // Fill `out` with the floats of a benchmark's blocks, side by side. fill_arriving() writes values as a rank receives
  // them. fill_local() writes the values that the rank adds. Blocks are spread over a recording, and wrap around at its
  // end.
  void fill_arriving(size_t block_floats, std::span<float> out) const;
  void fill_local(size_t block_floats, std::span<float> out) const;

  // Measures a codec. The vNMSE is that of the mean of ranks() ranks. The ratio is that of single contributions, except
  // in a set of sums ("NAME xR"): there it is that of the sum of all ranks.
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
  std::shared_ptr<const NpyArray> array_;  // shared by all sets of a recording
  Contributions contributions_;            // rows of `array_`
};

// Makes the sets for `names`: names from data_names(), and paths of recordings, which end in ".npy". A recording has
// one contribution in each row (docs/accuracy.md). NAME.npy becomes the set "NAME" of its single contributions. If it
// has several rows, R of them, it also becomes "NAME xR", the sums of these rows. Throws SetupError for unknown names,
// for files that are no recordings, and for names that occur twice.
[[nodiscard]] std::vector<Samples> make_samples(const std::vector<std::string>& names);

}  // namespace gradlane
