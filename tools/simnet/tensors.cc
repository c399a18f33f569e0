// tensors.cc - what the ranks of a simulated operation put in, and what must come out
#include "tools/simnet/tensors.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "base/error.h"
#include "base/random.h"
#include "tools/bench/data.h"

namespace gradlane {
namespace {

constexpr size_t kTable = 65521;
constexpr size_t kGranule = 32;

void require(bool ok) {
  if (!ok) throw SetupError("a codec did not take its own block: this is a bug in gradlane");
}

// A block of the tensor, whose shares are in it, and in which order, and who has it in the end.
struct Block {
  size_t begin;
  size_t end;
  unsigned first;   // contributor; the others follow it in the ring
  unsigned shares;  // contributors
  unsigned holder;  // first of those who have it
  unsigned holders;
};

std::vector<Block> blocks_of(OpKind kind, size_t n, unsigned p) {
  if (kind == OpKind::kBarrier) return {};
  if (kind == OpKind::kBroadcast) return {{0, n, 0, 1, 0, p}};
  std::vector<Block> blocks;
  const size_t granules = (n + kGranule - 1) / kGranule;
  for (unsigned b = 0; b < p; ++b) {
    const auto cut = [&](size_t i) {
      return kind == OpKind::kAllReduce ? std::min(n, granules * i / p * kGranule) : n / p * i;
    };
    const unsigned after = (b + 1) % p;
    if (kind == OpKind::kAllReduce) blocks.push_back({cut(b), cut(b + 1), after, p, 0, p});
    if (kind == OpKind::kReduceScatter) blocks.push_back({cut(b), cut(b + 1), after, p, b, 1});
    if (kind == OpKind::kAllGather) blocks.push_back({cut(b), cut(b + 1), b, 1, 0, p});
  }
  return blocks;
}

// Computes what comes out, run by run.
class Reference {
 public:
  Reference(const Codec& codec, const SimInputs& inputs, unsigned ranks)
      : codec_(codec),
        inputs_(inputs),
        ranks_(ranks),
        block_(codec.max_bytes(SimInputs::kMaxRun)),
        next_(block_.size()),
        result_(SimInputs::kMaxRun) {}

  std::span<const float> run(const Block& block, size_t first, size_t count) {
    const EncodeResult start = codec_.encode(inputs_.values(block.first, first, count), block_);
    require(start.floats == count);
    size_t bytes = start.bytes;
    for (unsigned i = 1; i < block.shares; ++i) {
      const std::span<const float> share = inputs_.values((block.first + i) % ranks_, first, count);
      const HopResult hop = codec_.hop({block_.data(), bytes}, share, next_);
      require(hop.status == Status::kOk && hop.floats == count);
      bytes = hop.bytes;
      block_.swap(next_);
    }
    const std::span<float> result(result_.data(), count);
    require(codec_.decode({block_.data(), bytes}, result) == Status::kOk);
    return result;
  }

 private:
  const Codec& codec_;
  const SimInputs& inputs_;
  unsigned ranks_;
  std::vector<uint8_t> block_;
  std::vector<uint8_t> next_;
  std::vector<float> result_;
};

// NaN has bits too, and -0 is not +0.
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
  return {table_.data() + (start + first) % kTable, count};
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
  (void)madvise(p, mapped_, MADV_HUGEPAGE);  // only makes it faster
  floats_ = static_cast<float*>(p);
}

SimTensors::~SimTensors() { munmap(floats_, mapped_); }

uint64_t count_wrong(OpKind kind, const Codec& codec, const SimInputs& inputs, const SimTensors& tensors) {
  const unsigned p = tensors.ranks();
  Reference reference(codec, inputs, p);
  uint64_t wrong = 0;
  for (const Block& block : blocks_of(kind, tensors.elements(), p)) {
    for (size_t first = block.begin; first < block.end; first += SimInputs::kMaxRun) {
      const size_t count = std::min(SimInputs::kMaxRun, block.end - first);
      const std::span<const float> expected = reference.run(block, first, count);
      for (unsigned rank = block.holder; rank < block.holder + block.holders; ++rank) {
        wrong += count_different(expected, tensors.of(rank).subspan(first, count));
      }
    }
  }
  return wrong;
}

}  // namespace gradlane
