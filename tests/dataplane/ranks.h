// ranks.h - a trainer for each rank of a cluster, and operations of all ranks with checks of their results
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "tests/dataplane/cluster.h"
#include "tests/dataplane/trainer/trainer_values.h"

namespace gradlane::test {

// A trainer for each of a cluster's ranks.
class Ranks {
 public:
  explicit Ranks(Cluster& cluster) : cluster_(cluster) {
    for (unsigned node = 0; node < cluster.nodes().size(); ++node) {
      for (unsigned i = 0; i < cluster.trainers(); ++i) {
        Trainer& it = *trainers_.emplace_back(std::make_unique<Trainer>(cluster, node, i));
        it.attach();
        it.add_segment(0, size_t{1} << 20);
      }
    }
  }
  Trainer& operator[](size_t rank) { return *trainers_[rank]; }
  [[nodiscard]] unsigned count() const { return static_cast<unsigned>(trainers_.size()); }

  uint64_t submit(unsigned rank, const Task& task, uint32_t timeout_ms = 0) {
    fill(task, rank, count(), trainers_[rank]->segment(0) + task.offset);
    gl_submission submission = task.submission();
    submission.timeout_ms = timeout_ms;
    return trainers_[rank]->submit(submission);
  }
  // Runs a task on all ranks. Each rank must get the right result.
  void run(const Task& task) {
    std::vector<uint64_t> cookies;
    for (unsigned rank = 0; rank < count(); ++rank) cookies.push_back(submit(rank, task));
    finish(task, cookies);
  }
  void finish(const Task& task, const std::vector<uint64_t>& cookies) {
    ASSERT_TRUE(cluster_.run_until([&] { return over(cookies); }, 5 * kSecond)) << "an operation does not end";
    for (unsigned rank = 0; rank < count(); ++rank) {
      EXPECT_EQ(trainers_[rank]->over(cookies[rank])->text, "") << "rank " << rank;
      EXPECT_TRUE(right(task, rank, count(), trainers_[rank]->segment(0) + task.offset));
    }
  }
  [[nodiscard]] bool over(const std::vector<uint64_t>& cookies) {
    bool all = true;
    for (unsigned rank = 0; rank < count(); ++rank) all &= trainers_[rank]->over(cookies[rank]).has_value();
    return all;
  }

 private:
  Cluster& cluster_;
  std::vector<std::unique_ptr<Trainer>> trainers_;
};

inline Task all_reduce(size_t count) {
  return {.kind = OpKind::kAllReduce, .type = ElementType::kFloat32, .count = count};
}

}  // namespace gradlane::test
