// gradients.cc - the contributions of each rank to a series of exchanges: made or recorded floats
#include "tools/sim/gradients.h"

#include <algorithm>
#include <filesystem>

#include "sim/data.h"

namespace gradlane {
namespace {

constexpr size_t kRows = 4;
constexpr size_t kColumns = size_t{1} << 20;
constexpr size_t kStep = 7919;  // elements by which values move on from one exchange to the next: a prime

NpyArray table_of(const std::string& data, bool recorded) {
  if (recorded) return load_npy(data);
  NpyArray table{kRows, kColumns, std::vector<float>(kRows * kColumns)};
  for (size_t row = 0; row < kRows; ++row) {
    fill_data(data, row + 1, std::span(table.floats).subspan(row * kColumns, kColumns));
  }
  return table;
}

}  // namespace

Gradients::Gradients(const std::string& data)
    : name_(std::filesystem::path(data).stem().string()),
      recorded_(data.ends_with(".npy")),
      table_(table_of(data, recorded_)) {
  if (!recorded_) name_ = data;
}

void Gradients::fill(unsigned rank, unsigned exchange, std::span<float> tensor) const {
  const std::span<const float> row = table_.row(rank % table_.rows);
  size_t from = exchange * kStep % row.size();
  for (size_t done = 0; done < tensor.size(); from = 0) {
    const size_t n = std::min(row.size() - from, tensor.size() - done);
    std::copy_n(row.begin() + static_cast<std::ptrdiff_t>(from), n, tensor.begin() + static_cast<std::ptrdiff_t>(done));
    done += n;
  }
}

}  // namespace gradlane
