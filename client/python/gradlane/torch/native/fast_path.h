// fast_path.h - all-reduces that bypass Python, unless they fail or are not over at once (the thread that calls)
#pragma once

#include <torch/csrc/distributed/c10d/Types.hpp>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gradlane.h"
#include "object.h"

namespace gradlane::native {

// Runs an all-reduce of one dense tensor on the CPU, as a task in the library's queue. If the task has failed, or is
// not over when gradlane_add() returns, Tasks.adopt() in Python takes over.
class FastPath {
 public:
  using Add = decltype(&gradlane_add);

  // connection: Python object that keeps the context open. add, context: addresses of gradlane_add() and of the
  // context.
  FastPath(py::object connection, uint64_t add, uint64_t context)
      : connection_(std::move(connection)),
        add_(reinterpret_cast<Add>(add)),
        context_(reinterpret_cast<gradlane_context*>(context)) {}

  // Sets codec and strategy of the sums from now on; none stands for the daemon's. coded: whether sums that a codec
  // applies to may be done here. hashed: whether results join the running hash.
  void set(std::optional<std::string> codec, std::optional<std::string> strategy, bool coded, bool hashed) {
    const std::lock_guard lock(mutex_);
    codec_ = std::move(codec);
    strategy_ = std::move(strategy);
    coded_ = coded;
    flags_ = hashed ? GRADLANE_HASHES : 0;
  }

  // Sends all-reduces through Python while it is paused; for tests.
  void pause(bool paused) { paused_ = paused; }

  bool can(const std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) const {
    if (paused_ || tensors.size() != 1 || options.sparseIndices.has_value()) return false;
    const at::Tensor& tensor = tensors[0];
    const auto op = options.reduceOp.op_;
    const bool is_plain = tensor.layout() == at::kStrided && tensor.is_cpu() && tensor.is_contiguous() &&
                          !tensor.is_neg() && !tensor.is_quantized() && tensor.numel() > 0;
    const auto type = type_of(tensor);
    if (!is_plain || !type) return false;
    if (op == c10d::ReduceOp::AVG) return at::isFloatingType(tensor.scalar_type());
    return op == c10d::ReduceOp::SUM || op == c10d::ReduceOp::MIN || op == c10d::ReduceOp::MAX;
  }

  static gradlane_reduction reduction_of(const c10d::AllreduceOptions& options) {
    if (options.reduceOp.op_ == c10d::ReduceOp::MIN) return GRADLANE_MIN;
    return options.reduceOp.op_ == c10d::ReduceOp::MAX ? GRADLANE_MAX : GRADLANE_SUM;
  }

  // Starts an all-reduce for which can() has returned true. It does not take the interpreter lock. Returns false if
  // Python chooses the codec.
  bool all_reduce(at::Tensor& tensor, const c10d::AllreduceOptions& options, int64_t timeout_ms,
                  gradlane_outcome* outcome) {
    const size_t count = static_cast<size_t>(tensor.numel());
    const gradlane_reduction reduction = reduction_of(options);
    const bool sum = reduction == GRADLANE_SUM;
    const bool coded = tensor.scalar_type() == at::kFloat && sum && count >= GRADLANE_EXACT_BELOW;
    std::optional<std::string> codec;
    std::optional<std::string> strategy;
    gradlane_task task = GRADLANE_TASK_INIT;
    {
      const std::lock_guard lock(mutex_);
      if (coded && !coded_) return false;
      if (sum && coded_) codec = codec_;
      strategy = strategy_;
      task.flags = flags_;
    }
    gradlane_how how = GRADLANE_HOW_INIT;
    how.codec = codec ? codec->c_str() : nullptr;
    how.strategy = strategy ? strategy->c_str() : nullptr;
    how.average = options.reduceOp.op_ == c10d::ReduceOp::AVG ? 1 : 0;
    how.reduction = reduction;
    how.timeout_ms = timeout_ms;
    how.part_bytes = kPart;
    task.collective = GRADLANE_ALL_REDUCE;
    task.type = *type_of(tensor);
    task.data = tensor.mutable_data_ptr();
    task.count = count;
    task.how = &how;
    if (add_(context_, &task, outcome) == GRADLANE_OK) {
      calls_.fetch_add(1, std::memory_order_relaxed);
      bytes_.fetch_add(tensor.nbytes(), std::memory_order_relaxed);
    }
    return true;
  }

  // Keeps a tensor alive that the library may still write to, although nobody waits for it.
  void keep(const at::Tensor& tensor) {
    const std::lock_guard lock(mutex_);
    kept_.push_back(tensor);
  }

  // Returns the number of all-reduces that have ended here since the previous call, and their bytes; for
  // call_statistics.py.
  std::pair<uint64_t, uint64_t> take_counts() { return {calls_.exchange(0), bytes_.exchange(0)}; }

 private:
  static constexpr size_t kPart = size_t{512} << 10;  // equal to operations._PART in Python

  static std::optional<gradlane_type> type_of(const at::Tensor& tensor) {
    switch (tensor.scalar_type()) {
      case at::kFloat:
        return GRADLANE_FLOAT32;
      case at::kDouble:
        return GRADLANE_FLOAT64;
      case at::kHalf:
        return GRADLANE_FLOAT16;
      case at::kBFloat16:
        return GRADLANE_BFLOAT16;
      case at::kInt:
        return GRADLANE_INT32;
      case at::kLong:
        return GRADLANE_INT64;
      default:
        return std::nullopt;
    }
  }

  const Object connection_;
  const Add add_;
  gradlane_context* const context_;
  std::mutex mutex_;
  std::optional<std::string> codec_;
  std::optional<std::string> strategy_;
  bool coded_ = false;
  unsigned flags_ = 0;
  std::atomic<bool> paused_{false};
  std::vector<at::Tensor> kept_;
  std::atomic<uint64_t> calls_{0};
  std::atomic<uint64_t> bytes_{0};
};

}  // namespace gradlane::native
