// gradients.h - the contributions of each rank to a series of exchanges: made or recorded floats
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "tools/bench/npy.h"

namespace gradlane {

// Makes a tensor of any length for each rank and exchange. Its values come from a table with a row for each rank, which
// is repeated. From one exchange to the next the values move on, by the same number of elements on all ranks. So no
// element has the same gradient forever, and values that are left out of one exchange compete with others in the next.
class Gradients {
 public:
  // `data` is one of data_names(), or a recording (FILE.npy) with at least one row. Throws SetupError.
  explicit Gradients(const std::string& data);

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] bool recorded() const { return recorded_; }
  void fill(unsigned rank, unsigned exchange, std::span<float> tensor) const;

 private:
  std::string name_;
  bool recorded_;
  NpyArray table_;
};

}  // namespace gradlane
