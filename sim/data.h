// data.h - floats like those that codecs meet, by name and seed
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace gradlane {

// laplace-1e-3, gauss-0.01, gauss-0.1, gauss-1: such a distribution around 0 with that scale.
// denormals-10%, outliers-0.1%: laplace-1e-3 where that share is denormal, or of magnitude 100 to 1000.
[[nodiscard]] std::vector<std::string> data_names();

// Fills `out`; the same name and seed give the same floats. Throws SetupError for an unknown name.
void fill_data(std::string_view name, uint64_t seed, std::span<float> out);

}  // namespace gradlane
