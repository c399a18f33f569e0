// data.h - random floats like those that codecs get in practice, by name and seed
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gradlane {

// Returns the names of distributions. Four of them, laplace-1e-3, gauss-0.01, gauss-0.1 and gauss-1, are distributions
// around 0 with that scale. The other two, denormals-10% and outliers-0.1%, are laplace-1e-3, but with that share of
// values that are denormal, or have a magnitude of 100 to 1000.
[[nodiscard]] std::vector<std::string> data_names();

// Fills `out`; the same name and seed give the same floats. Throws SetupError for an unknown name.
void fill_data(std::string_view name, uint64_t seed, std::span<float> out);

}  // namespace gradlane
