// tensors.cc - the inputs of the ranks of a simulated operation, and a check of the results
#include "sim/tensors.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "base/random.h"
#include "sim/data.h"
#include "sim/reference.h"

namespace gradlane {
namespace {

constexpr size_t kTable = 65521;

// Counts elements whose bits differ. So NaN can be equal to NaN, and -0 differs from +0.
uint64_t count_different(std::span<const float> a, std::span<const float> b) {
  if (std::memcmp(a.data(), b.data(), a.size_bytes()) == 0) return 0;
  uint64_t different = 0;
  for (size_t i = 0; i < a.size(); ++i) different += std::memcmp(&a[i], &b[i], sizeof(float)) != 0 ? 1 : 0;
  return different;
}

}  // namespace

SimInputs::SimInputs(std::string_view data, uint64_t seed) : seed_(seed), table_(kTable + kMaxRun) {
  fill_data(data, seed, {table_.data(), kTable});
  std::copy_n(table_.begin(), kMaxRun, table_.begin() + kTable);
}

std::span<const float> SimInputs::values(unsigned rank, size_t first, size_t count) const {
  const size_t start = Random::mix(seed_, rank) % kTable;
  return {table_.data() + (start + from_ + first) % kTable, count};
}

SimInputs SimInputs::from(size_t first) const {
  SimInputs rest = *this;
  rest.from_ = (from_ + first) % kTable;
  return rest;
}

void SimInputs::put(size_t place, float value) {
  table_[place] = value;
  if (place < kMaxRun) table_[kTable + place] = value;
}

void SimInputs::fill(unsigned rank, std::span<float> tensor) const {
  for (size_t first = 0; first < tensor.size(); first += kMaxRun) {
    const size_t count = std::min(kMaxRun, tensor.size() - first);
    std::copy_n(values(rank, first, count).data(), count, tensor.data() + first);
  }
}

SimTensors::SimTensors(unsigned ranks, size_t elements)
    : ranks_(ranks), elements_(elements), mapped_(std::max<size_t>(ranks * elements * sizeof(float), 1)) {
  void* const p = mmap(nullptr, mapped_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  (void)madvise(p, mapped_, MADV_HUGEPAGE);  // only for speed, so it may fail
  floats_ = static_cast<float*>(p);
}

SimTensors::~SimTensors() { munmap(floats_, mapped_); }

uint64_t count_wrong(const Operation& operation, const Codec& codec, const SimInputs& inputs, const SimTensors& tensors,
                     const SimRun& run) {
  SimReference reference(operation, codec, inputs, tensors.ranks(), run);
  uint64_t wrong = 0;
  for (const SimPiece& piece : reference.pieces(tensors.elements())) {
    for (size_t first = piece.begin; first < piece.end; first += SimInputs::kMaxRun) {
      const size_t count = std::min(SimInputs::kMaxRun, piece.end - first);
      const std::span<const float> expected = reference.run(piece, first, count);
      for (unsigned rank = piece.holder; rank < piece.holder + piece.holders; ++rank) {
        wrong += count_different(expected, tensors.of(rank).subspan(first, count));
      }
    }
  }
  return wrong;
}

uint64_t count_wrong(OpKind kind, const Codec& codec, const SimInputs& inputs, const SimTensors& tensors) {
  Operation operation;
  operation.kind = kind;
  return count_wrong(operation, codec, inputs, tensors);
}

}  // namespace gradlane
