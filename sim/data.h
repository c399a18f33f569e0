// data.h - random floats like those that codecs get in practice, by name and seed
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gradlane {

// Returns the names of distributions. Four of them, laplace-1e-3, gauss-0.01, gauss-0.1 and gauss-1, are distributions
// around 0 with that scale. The name denormals-10% stands for laplace-1e-3 with 10 % of denormal values. The name
// outliers-0.1% stands for laplace-1e-3 with 0.1 % of values of a magnitude from 100 to 1000.
[[nodiscard]] std::vector<std::string> data_names();

// Fills `out`; the same name and seed give the same floats. Throws SetupError for an unknown name.
void fill_data(std::string_view name, uint64_t seed, std::span<float> out);

}  // namespace gradlane
