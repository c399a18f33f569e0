// rows.h - spans that overlap, in as few rows as it takes (pure)
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace gradlane {

// To be asked in the order of the spans' beginnings.
class Rows {
 public:
  // The first row that is free from `begin` on; it is taken until `end`.
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
  std::vector<uint64_t> free_;  // from when on
};

}  // namespace gradlane
