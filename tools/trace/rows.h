// rows.h - assignment of overlapping spans to as few rows as possible (pure)
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gradlane {

// Assigns rows. Spans must be added in the order of their beginnings.
class Rows {
 public:
  // Returns the first row that is free from `begin` on, and takes it until `end`.
  size_t take(uint64_t begin, uint64_t end) {
    for (size_t row = 0; row < free_.size(); ++row) {
      if (free_[row] > begin) continue;
      free_[row] = end;
      return row;
    }
    free_.push_back(end);
    return free_.size() - 1;
  }
  [[nodiscard]] size_t count() const noexcept { return free_.size(); }

 private:
  std::vector<uint64_t> free_;  // for each row: the time from which it is free
};

}  // namespace gradlane
