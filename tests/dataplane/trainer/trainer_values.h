// trainer_values.h - tensors of trainers whose sums are exact in every type and codec, and the expected results
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "base/time.h"
#include "tests/collectives/exchange/reference_elements.h"
#include "tests/dataplane/trainer/trainer_fixture.h"
#include "tests/thorough.h"

namespace gradlane::test {

inline constexpr ElementType kTypes[] = {ElementType::kFloat32,  ElementType::kFloat64, ElementType::kFloat16,
                                         ElementType::kBfloat16, ElementType::kInt32,   ElementType::kInt64,
                                         ElementType::kBytes};

// Returns the size in bytes of the largest tensors of a type. Without GRADLANE_THOROUGH=1, rounds() makes it a fifth,
// except for float32 and int64.
inline size_t most_bytes(ElementType type, size_t all) {
  return type == ElementType::kFloat32 || type == ElementType::kInt64 ? all : rounds(all);
}

inline uint64_t word_of_int(ElementType type, int value) {
  if (type == ElementType::kFloat32) return std::bit_cast<uint32_t>(static_cast<float>(value));
  if (type == ElementType::kFloat64) return std::bit_cast<uint64_t>(static_cast<double>(value));
  if (is_half(type)) return word_of(half_format(type), value);
  return static_cast<uint64_t>(int64_t{value});
}

// Returns the contribution of rank `rank` of n to element i. Two ranks contribute to each element, and all others have
// 0. The two ranks change from element to element. All sums are multiples of n.
inline int contribution_of(unsigned rank, unsigned n, size_t i) {
  const int own = (i + rank) % n == 0 ? static_cast<int>(i % 5) - 2 : 0;
  const int other = (i + rank + 1) % n == 0 ? 1 : 0;
  return static_cast<int>(n) * (own + other);
}
inline int average_of(size_t i) { return static_cast<int>(i % 5) - 1; }

// One operation of all ranks.
struct Task {
  OpKind kind = OpKind::kAllReduce;
  ElementType type = ElementType::kFloat32;
  size_t count = 0;
  Reduction reduction = Reduction::kSum;
  unsigned root = 0;
  size_t offset = 0;          // offset of the tensor in segment 0
  size_t out = 0;             // offset of an all-to-all's output in segment 0
  const char* strategy = "";  // name of the strategy; empty if the operation names none

  [[nodiscard]] size_t elements(unsigned ranks) const {
    if (kind == OpKind::kBarrier) return 0;
    return has_shares(kind) ? count * ranks : count;
  }
  [[nodiscard]] size_t bytes(unsigned ranks) const { return elements(ranks) * element_bytes(type); }
  [[nodiscard]] gl_submission submission() const {
    gl_submission it = submission_of(kind, type, count, offset);
    constexpr uint32_t kFlags[] = {0, GL_FLAG_AVERAGE, GL_FLAG_MIN, GL_FLAG_MAX};
    it.flags = kFlags[static_cast<unsigned>(reduction)];
    if (kind == OpKind::kBroadcast || kind == OpKind::kReduce) it.root = root;
    if (kind == OpKind::kGather || kind == OpKind::kScatter) it.block_root = root;
    if (kind == OpKind::kAllToAll) it.residual_offset = out;
    if (*strategy != 0) it.strategy = find_strategy(strategy).code();
    return it;
  }
};

inline void fill(const Task& task, unsigned rank, unsigned ranks, uint8_t* at) {
  const size_t width = element_bytes(task.type);
  for (size_t i = 0; i < task.elements(ranks); ++i) {
    const uint64_t word = word_of_int(task.type, contribution_of(rank, ranks, i));
    std::memcpy(at + i * width, &word, width);
  }
}

// Returns the least or greatest contribution. Two ranks contribute, and all others have 0.
inline uint64_t picked(const Task& task, unsigned ranks, size_t i) {
  const size_t width = element_bytes(task.type);
  const auto word = [&](int value) {
    const uint64_t bits = word_of_int(task.type, value);
    return width < 8 ? bits & ((uint64_t{1} << 8 * width) - 1) : bits;
  };
  const auto one = static_cast<unsigned>(ranks - 1 - (i + ranks - 1) % ranks);
  const unsigned before = (one + ranks - 1) % ranks;
  const auto pick = [&](uint64_t a, uint64_t b) {
    return reference_pick(task.type, task.reduction == Reduction::kMax, a, b);
  };
  const uint64_t best = pick(word(contribution_of(one, ranks, i)), word(contribution_of(before, ranks, i)));
  return ranks > 2 ? pick(best, word(0)) : best;
}

// Checks the result on a rank. Names the first element that is wrong.
inline testing::AssertionResult right(const Task& task, unsigned rank, unsigned ranks, const uint8_t* at) {
  const size_t width = element_bytes(task.type);
  for (size_t i = 0; i < task.elements(ranks); ++i) {
    int want = average_of(i) * (task.reduction == Reduction::kAverage ? 1 : static_cast<int>(ranks));
    if (task.kind == OpKind::kReduceScatter && i / task.count != rank) continue;  // these elements are undefined
    if (task.kind == OpKind::kAllGather) want = contribution_of(static_cast<unsigned>(i / task.count), ranks, i);
    if (task.kind == OpKind::kBroadcast) want = contribution_of(task.root, ranks, i);
    const bool kept = task.kind == OpKind::kReduce || task.kind == OpKind::kGather;
    const bool stays = kept && rank != task.root;
    if (delivers(task.kind) || stays) {
      const auto block = static_cast<unsigned>(i / task.count);
      unsigned from = rank;
      if (task.kind == OpKind::kGather && rank == task.root) from = block;
      if (task.kind == OpKind::kScatter && rank == block) from = task.root;
      if (task.kind == OpKind::kAllToAll) from = block;
      const size_t place = task.kind == OpKind::kAllToAll ? rank * task.count + i % task.count : i;
      want = contribution_of(from, ranks, place);
    }
    uint64_t word = 0;
    std::memcpy(&word, at + i * width, width);
    uint64_t wanted = word_of_int(task.type, want);
    if (width < 8) wanted &= (uint64_t{1} << 8 * width) - 1;
    if (picks(task.reduction) && !stays) wanted = picked(task, ranks, i);
    // A sum of nothing but -0 is -0, so any zero is right.
    const bool zeros = is_floating(task.type) && want == 0 && (word & ((uint64_t{1} << (8 * width - 1)) - 1)) == 0;
    if (word != wanted && !zeros) {
      return testing::AssertionFailure() << op_name(task.kind) << " of " << task.count << " " << element_name(task.type)
                                         << ": rank " << rank << ", element " << i << " has the bits " << std::hex
                                         << word << ", wanted " << wanted;
    }
  }
  return testing::AssertionSuccess();
}

// Trainers of all ranks. Each one has a segment of max_bytes.
class Trainers {
 public:
  explicit Trainers(const TrainerConfig& config) : world(config) {
    for (unsigned rank = 0; rank < world.ranks(); ++rank) {
      all.push_back(std::make_unique<Trainer>(world, rank / config.trainers, rank % config.trainers));
      come(rank);
    }
  }
  Trainer& operator[](unsigned rank) { return *all[rank]; }
  void come(unsigned rank) {
    all[rank]->attach();
    all[rank]->add_segment(0, world.config().max_bytes);
  }
  uint64_t submit(unsigned rank, const Task& task) {
    fill(task, rank, world.ranks(), all[rank]->segment(0) + task.offset);
    return all[rank]->submit(task.submission());
  }
  // Runs a task on all ranks. Returns its end on each rank.
  std::vector<Outcome> outcomes(const Task& task, Nanos time = 5 * kSecond) {
    std::vector<uint64_t> cookies;
    for (unsigned rank = 0; rank < world.ranks(); ++rank) cookies.push_back(submit(rank, task));
    return outcomes_of(cookies, time);
  }
  std::vector<Outcome> outcomes_of(const std::vector<uint64_t>& cookies, Nanos time = 5 * kSecond) {
    std::vector<Outcome> ends(cookies.size());
    const auto ended = [&] {
      bool so = true;
      for (unsigned rank = 0; rank < cookies.size(); ++rank) so &= all[rank]->over(cookies[rank]).has_value();
      return so;
    };
    EXPECT_TRUE(world.run_until(ended, time)) << "an operation does not end";
    for (unsigned rank = 0; rank < cookies.size(); ++rank) {
      const auto end = all[rank]->over(cookies[rank]);
      ends[rank] = end ? *end : Outcome{.lanes = 0, .failed = 99, .text = "not over"};
    }
    return ends;
  }
  // Runs a task on all ranks. It must succeed and give the right result.
  void run(const Task& task) {
    const auto ends = outcomes(task);
    for (unsigned rank = 0; rank < world.ranks(); ++rank) {
      EXPECT_EQ(ends[rank].failed, 0U) << "rank " << rank << ": " << ends[rank].text;
      if (ends[rank].failed == 0) {
        EXPECT_TRUE(right(task, rank, world.ranks(), all[rank]->segment(0) + task.offset));
      }
    }
  }

  TrainerWorld world;
  std::vector<std::unique_ptr<Trainer>> all;
};

}  // namespace gradlane::test
