// express.h - an all-reduce that is over at once, without Python (the thread that calls)
#pragma once

#include <torch/csrc/distributed/c10d/Types.hpp>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <optional>
#include <string>
#include <utility>

#include "check_sum.h"
#include "gradlane.h"
#include "object.h"

namespace gradlane::native {

// What Driver._try() does in Python, for one float32 tensor of one piece on the CPU: it takes its place in the order of
// operations, waits for a moment, and if it is not over then, or has failed, leaves the rest to Driver.resume(). State
// is the driver's, which is looked at with the interpreter lock held: its `lock`, `_queue`, `closed`, `_small`,
// `_counted` and `_past`.
class Express {
 public:
  struct Library {
    decltype(&gradlane_all_reduce) all_reduce;
    decltype(&gradlane_wait) wait;
    decltype(&gradlane_warning) warning;
  };

  // How it has ended. request: 0 if the library refused it. warning: of the library, or NULL.
  struct Outcome {
    uint64_t number;
    gradlane_request request;
    gradlane_code code;
    const char* warning;
  };

  // Numbers are addresses: of functions and of the context. block: of kPiece bytes, in shared memory.
  Express(py::object driver, uint64_t all_reduce, uint64_t wait, uint64_t warning, uint64_t context, uint64_t block)
      : driver_(driver),
        acquire_(driver.attr("lock").attr("acquire")),
        release_(driver.attr("lock").attr("release")),
        library_{reinterpret_cast<decltype(Library::all_reduce)>(all_reduce),
                 reinterpret_cast<decltype(Library::wait)>(wait),
                 reinterpret_cast<decltype(Library::warning)>(warning)},
        context_(reinterpret_cast<gradlane_context*>(context)),
        block_(reinterpret_cast<void*>(block)) {}

  // Of sums from now on; none: the daemon's. coded: those that a codec applies to may come here.
  void set(std::optional<std::string> codec, std::optional<std::string> strategy, bool coded) {
    codec_ = std::move(codec);
    strategy_ = std::move(strategy);
    coded_ = coded;
  }

  // With the driver's lock held: nothing goes so any more. Until then the driver is kept.
  void close() { driver_ = acquire_ = release_ = py::object(); }

  static bool can(const std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& options) {
    if (tensors.size() != 1 || options.sparseIndices.has_value()) return false;
    const at::Tensor& tensor = tensors[0];
    const bool sums = options.reduceOp.op_ == c10d::ReduceOp::SUM || options.reduceOp.op_ == c10d::ReduceOp::AVG;
    return sums && tensor.is_cpu() && tensor.scalar_type() == at::kFloat && tensor.layout() == at::kStrided &&
           tensor.is_contiguous() && tensor.numel() > 0 && tensor.nbytes() <= kPiece;
  }

  // Of what can() has said yes to. Nothing: it is not its turn. Else the driver's lock is held, and release() to be
  // called.
  std::optional<Outcome> all_reduce(at::Tensor& tensor, bool average, int64_t timeout_ms) {
    const size_t bytes = tensor.nbytes();
    const size_t count = static_cast<size_t>(tensor.numel());
    void* const data = tensor.mutable_data_ptr();
    const auto begun = begin(tensor.numel());
    if (!begun) return std::nullopt;
    gradlane_how how = GRADLANE_HOW_INIT;
    how.codec = codec_ && count >= GRADLANE_EXACT_BELOW ? codec_->c_str() : nullptr;
    how.strategy = strategy_ ? strategy_->c_str() : nullptr;
    how.average = average ? 1 : 0;
    how.has_tag = 1;
    how.tag = tag(bytes, average, *begun);
    how.timeout_ms = timeout_ms;
    how.whole = count;
    how.part_bytes = kPart;
    std::memcpy(block_, data, bytes);
    Outcome outcome{begun->number, 0, GRADLANE_OK, nullptr};
    outcome.code = library_.all_reduce(context_, block_, count, GRADLANE_FLOAT32, &how, &outcome.request);
    if (outcome.code != GRADLANE_OK) {
      outcome.request = 0;
      return outcome;
    }
    outcome.code = library_.wait(context_, outcome.request, kPatienceMs);
    if (outcome.code != GRADLANE_OK) return outcome;
    std::memcpy(data, block_, bytes);
    if (count >= GRADLANE_EXACT_BELOW) outcome.warning = library_.warning(context_);
    return outcome;
  }

  // With the interpreter lock held: what lets go of the driver's lock, close() or not.
  py::object release() const { return release_; }

  // Sums since the last call that were over so, and their bytes; for ledger.py.
  std::pair<uint64_t, uint64_t> take_counts() { return {calls_.exchange(0), bytes_.exchange(0)}; }

  // With both locks: so many bytes were over in time.
  void over(size_t bytes) {
    calls_.fetch_add(1, std::memory_order_relaxed);
    bytes_.fetch_add(bytes, std::memory_order_relaxed);
    if (!driver_) return;
    const size_t small = driver_.attr("_small").cast<size_t>();
    if (small < kPiece && small < 2 * bytes) driver_.attr("_small") = std::min(2 * bytes, kPiece);
  }

 private:
  static constexpr size_t kPiece = size_t{1} << 20;   // driver.SMALL
  static constexpr size_t kPart = size_t{512} << 10;  // staging.PIECE
  static constexpr int kPatienceMs = 1;               // driver._PATIENCE_MS

  struct Begun {
    uint64_t number;
    uint64_t past;
  };

  // Takes the lock and a number.
  std::optional<Begun> begin(int64_t count) {
    if (!interpreter_is_there()) return std::nullopt;
    py::gil_scoped_acquire gil;
    if (!driver_ || (count >= GRADLANE_EXACT_BELOW && !coded_)) return std::nullopt;
    const py::object driver = driver_;
    if (!acquire_(false).cast<bool>()) return std::nullopt;
    const bool free = !driver.attr("closed").cast<bool>() && PyObject_IsTrue(driver.attr("_queue").ptr()) == 0 &&
                      count * 4 <= driver.attr("_small").cast<int64_t>();
    if (!free) {
      (void)release_();
      return std::nullopt;
    }
    const Begun begun{driver.attr("_counted").cast<uint64_t>(), driver.attr("_past").cast<uint64_t>()};
    driver.attr("_counted") = begun.number + 1;
    return begun;
  }

  // As Operation.tag() makes it, so that it is the same where another rank goes by Python.
  static uint64_t tag(size_t bytes, bool average, const Begun& begun) {
    char what[128];
    const int length = std::snprintf(what, sizeof(what), "all_reduce %zu 0 %s 0 %llu", bytes,
                                     average ? "True" : "False", static_cast<unsigned long long>(begun.past));
    const uint64_t check = check_sum({what, static_cast<size_t>(length)}) & 0xFFFFF;
    return (check << 24 | (begun.number & 0xFFFFFF)) << 20;
  }

  // The driver has this object until it calls close(), so that they are gone before it is.
  py::object driver_;
  py::object acquire_;
  py::object release_;
  const Library library_;
  gradlane_context* const context_;
  void* const block_;
  std::optional<std::string> codec_;
  std::optional<std::string> strategy_;
  bool coded_ = false;
  std::atomic<uint64_t> calls_{0};
  std::atomic<uint64_t> bytes_{0};
};

}  // namespace gradlane::native
