// algorithms.h - the algorithms that there are, and which one an operation goes by
#pragma once

#include <array>
#include <cstddef>
#include <memory>

namespace gradlane {

class Algorithm;
struct EngineParts;
struct Running;

inline constexpr size_t kAlgorithms = 4;

// One object of each, for one place of the table of operations.
class AlgorithmSet {
 public:
  AlgorithmSet() noexcept;
  AlgorithmSet(AlgorithmSet&&) noexcept;
  ~AlgorithmSet();

  // Allocates them; `it` and `parts` outlive this.
  void make(Running& it, const EngineParts& parts);
  // The one for an operation whose kind and strategy are known.
  [[nodiscard]] Algorithm& of(const Running& it) const noexcept;

 private:
  std::array<std::unique_ptr<Algorithm>, kAlgorithms> made_;
};

}  // namespace gradlane
