// gradients.h - what each rank contributes to one exchange after the other: made or recorded floats
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "tools/bench/npy.h"

namespace gradlane {

// A tensor of any length for each rank and exchange, of the values of a table with a row for each rank, over and over.
// From one exchange to the next the values move on, all ranks' alike, so that no element has the same gradient for
// ever: what is left out of one exchange competes with others in the next.
class Gradients {
 public:
  // One of data_names(), or a recording (FILE.npy), which has a row at least. Throws SetupError.
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
