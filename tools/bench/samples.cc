// samples.cc - data for codec benchmarks: generated data by name, and recordings of gradients (set-up only)
#include "tools/bench/samples.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "sim/data.h"

namespace gradlane {
namespace {

constexpr size_t kNamedRanks = 4;
constexpr size_t kNamedFloats = 1 << 16;  // floats of each rank
constexpr size_t kLineFloats = 16;        // alignment in floats of blocks in a recording

}  // namespace

Samples Samples::named(const std::string& name) {
  Samples samples(name, What::kNamed);
  NpyArray array{kNamedRanks, kNamedFloats, std::vector<float>(kNamedRanks * kNamedFloats)};
  for (size_t rank = 0; rank < kNamedRanks; ++rank) {
    fill_data(name, 1 + rank, std::span(array.floats).subspan(rank * kNamedFloats, kNamedFloats));
  }
  samples.array_ = std::make_shared<const NpyArray>(std::move(array));
  for (size_t rank = 0; rank < kNamedRanks; ++rank) samples.contributions_.push_back(samples.array_->row(rank));
  return samples;
}

std::vector<Samples> Samples::recorded(const std::string& path) {
  const auto array = std::make_shared<const NpyArray>(load_npy(path));
  const std::string name = std::filesystem::path(path).stem().string();
  std::vector<Samples> sets = {Samples(name, What::kSingle)};
  if (array->rows > 1) sets.push_back(Samples(name + " x" + std::to_string(array->rows), What::kSum));
  for (Samples& set : sets) {
    set.array_ = array;
    for (size_t row = 0; row < array->rows; ++row) set.contributions_.push_back(array->row(row));
  }
  return sets;
}

// Fills block i from row i + shift, or from the sum of all rows.
void Samples::fill(size_t block_floats, std::span<float> out, size_t shift, bool sum) const {
  const NpyArray& array = *array_;
  const size_t blocks = (out.size() + block_floats - 1) / block_floats;
  for (size_t i = 0; i < out.size(); ++i) {
    const size_t block = i / block_floats;
    const size_t start = block * array.columns / blocks / kLineFloats * kLineFloats;
    const size_t column = (start + i % block_floats) % array.columns;
    float value = array.row(sum ? 0 : (block + shift) % array.rows)[column];
    for (size_t row = 1; sum && row < array.rows; ++row) value += array.row(row)[column];
    out[i] = value;
  }
}

void Samples::fill_arriving(size_t block_floats, std::span<float> out) const {
  if (what_ == What::kNamed) return fill_data(name_, 1, out);
  fill(block_floats, out, 0, what_ == What::kSum);
}

void Samples::fill_local(size_t block_floats, std::span<float> out) const {
  if (what_ == What::kNamed) return fill_data(name_, 2, out);
  fill(block_floats, out, 1, false);
}

Quality Samples::quality(const Codec& codec, size_t block_floats) const {
  if (what_ == What::kSingle) return single_quality(codec, contributions_, block_floats);
  Quality quality = ring_quality(codec, contributions_, block_floats);
  if (what_ == What::kNamed) {
    const Quality single = single_quality(codec, contributions_, block_floats);
    quality.fp32_bytes = single.fp32_bytes;
    quality.encoded_bytes = single.encoded_bytes;
  }
  return quality;
}

std::vector<Samples> make_samples(const std::vector<std::string>& names) {
  std::vector<Samples> all;
  const std::vector<std::string> known = data_names();
  for (const std::string& name : names) {
    if (name.ends_with(".npy")) {
      std::ranges::move(Samples::recorded(name), std::back_inserter(all));
    } else if (std::ranges::find(known, name) != known.end()) {
      all.push_back(Samples::named(name));
    } else {
      std::string text = "unknown data '" + name + "'; allowed: ";
      for (const std::string& one : known) text += one + ", ";
      throw SetupError(text + "and recordings of gradients, FILE.npy");
    }
  }
  for (size_t i = 0; i < all.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (all[i].name() == all[j].name()) {
        throw SetupError("data '" + all[i].name() +
                         "' is given twice; give each once, and give recordings different names");
      }
    }
  }
  return all;
}

}  // namespace gradlane
