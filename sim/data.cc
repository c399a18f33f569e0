// data.cc - random floats like those that codecs get in practice, by name and seed (set-up of benchmarks, calibrations
// and simulations)
#include "sim/data.h"

#include <cmath>
#include <random>

#include "base/error.h"

namespace gradlane {
namespace {

enum class Shape { kLaplace, kGauss };

struct DataRow {
  const char* name;
  Shape shape;
  double scale;
  double denormals;  // share of all values
  double outliers;
};

constexpr DataRow kData[] = {
    {"laplace-1e-3", Shape::kLaplace, 1e-3, 0, 0},    {"gauss-0.01", Shape::kGauss, 0.01, 0, 0},
    {"gauss-0.1", Shape::kGauss, 0.1, 0, 0},          {"gauss-1", Shape::kGauss, 1, 0, 0},
    {"denormals-10%", Shape::kLaplace, 1e-3, 0.1, 0}, {"outliers-0.1%", Shape::kLaplace, 1e-3, 0, 0.001},
};

class Generator {
 public:
  Generator(const DataRow& row, uint64_t seed) : row_(row), engine_(seed) {}

  float next() {
    const double which = uniform_(engine_);
    const double sign = uniform_(engine_) < 0.5 ? -1 : 1;
    if (which < row_.denormals) return static_cast<float>(sign * 1e-38 * uniform_(engine_));
    if (which < row_.denormals + row_.outliers) return static_cast<float>(sign * (100 + 900 * uniform_(engine_)));
    if (row_.shape == Shape::kLaplace) return static_cast<float>(sign * row_.scale * exponential_(engine_));
    return static_cast<float>(row_.scale * normal_(engine_));
  }

 private:
  const DataRow& row_;
  std::mt19937_64 engine_;
  std::uniform_real_distribution<double> uniform_;
  std::exponential_distribution<double> exponential_;
  std::normal_distribution<double> normal_;
};

}  // namespace

std::vector<std::string> data_names() {
  std::vector<std::string> names;
  for (const DataRow& row : kData) names.emplace_back(row.name);
  return names;
}

void fill_data(std::string_view name, uint64_t seed, std::span<float> out) {
  for (const DataRow& row : kData) {
    if (name != row.name) continue;
    Generator generator(row, seed);
    for (float& f : out) f = generator.next();
    return;
  }
  throw SetupError("unknown data '" + std::string(name) + "'");
}

}  // namespace gradlane
