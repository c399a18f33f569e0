// work.h - operations that Python has started, as C++ holds them (any thread)
#pragma once

#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/csrc/distributed/c10d/Work.hpp>

#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "object.h"

namespace gradlane::native {

[[noreturn]] inline void raise_late(std::chrono::milliseconds timeout) {
  py::gil_scoped_acquire gil;
  PyErr_Format(PyExc_TimeoutError, "gradlane: the operation was not over within %d ms",
               static_cast<int>(timeout.count()));
  throw py::error_already_set();
}

using FuturePtr = c10::intrusive_ptr<c10::ivalue::Future>;

// Waits for a future, and looks at signals meanwhile: nobody waits for the interpreter lock in it, as whoever completes
// the future may have that.
class Waiting {
 public:
  explicit Waiting(FuturePtr future) : future_(std::move(future)), end_(std::make_shared<End>()) {
    future_->addCallback([end = end_](c10::ivalue::Future&) {
      const std::lock_guard lock(end->mutex);
      end->over = true;
      end->condition.notify_all();
    });
  }

  // Until it is over, for so long at most; 0: no limit. Returns the seconds that it took.
  double wait(std::chrono::milliseconds timeout) {
    const auto begin = std::chrono::steady_clock::now();
    const auto deadline = begin + timeout;
    while (!is_over_within_a_slice()) {
      if (timeout.count() > 0 && std::chrono::steady_clock::now() >= deadline) raise_late(timeout);
      look_at_signals();
    }
    while (!interpreter_is_there()) pause();  // until the process has ended
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

 private:
  static constexpr std::chrono::milliseconds kSlice{100};

  struct End {
    std::mutex mutex;
    std::condition_variable condition;
    bool over = false;
  };

  bool is_over_within_a_slice() {
    std::unique_lock lock(end_->mutex);
    return end_->condition.wait_for(lock, kSlice, [&] { return end_->over; });
  }

  // Ctrl-C is for the main thread.
  static void look_at_signals() {
    if (getpid() != gettid() || !interpreter_is_there()) return;
    py::gil_scoped_acquire gil;
    if (PyErr_CheckSignals() == 0) return;
    const py::error_already_set error;
    (void)py::module_::import("gradlane.torch.interrupts").attr("note")();
    throw error;
  }

  const FuturePtr future_;
  const std::shared_ptr<End> end_;
};

// A Work that is written in Python. It holds the Python object: without that, its methods would not be found. Waiting
// is done here and not in Python: when the interpreter ends, it ends threads that wait for its lock, and objects on
// their stacks cannot be let go of.
class WorkOfPython : public c10d::Work {
 public:
  // With the interpreter lock held, as `work` is.
  explicit WorkOfPython(py::object work) : future_(future_of(work)), work_(std::move(work)) {}

  // Raises what the Python object's wait() does when it is over.
  bool wait(std::chrono::milliseconds timeout) override {
    const Unlocked unlocked;
    double slept = 0;  // s
    if (future_ && !future_->completed()) slept = Waiting(future_).wait(timeout);
    py::gil_scoped_acquire gil;
    if (slept > 0) py::module_::import("gradlane.torch.summary").attr("Overlap").attr("wait")(slept);
    if (future_ || timeout.count() <= 0) return work_.get().attr("wait")().cast<bool>();
    return work_.get().attr("wait")(timeout).cast<bool>();
  }

  void synchronize() override { (void)wait(std::chrono::milliseconds(0)); }

  bool isCompleted() override { return asked<bool>("is_completed"); }

  bool isSuccess() const override { return asked<bool>("is_success"); }

  std::exception_ptr exception() const override {
    py::gil_scoped_acquire gil;
    const py::object error = work_.get().attr("exception")();
    if (error.is_none()) return nullptr;
    try {
      PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(error.ptr())), error.ptr());
      throw py::error_already_set();
    } catch (...) {
      return std::current_exception();
    }
  }

  std::vector<at::Tensor> result() override {
    py::gil_scoped_acquire gil;
    std::vector<at::Tensor> tensors;
    append(work_.get().attr("result")(), tensors);
    return tensors;
  }

  // Of a receive.
  int sourceRank() const override { return asked<int>("source_rank"); }

  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    if (!future_) {
      py::gil_scoped_acquire gil;
      (void)work_.get().attr("get_future")();  // raises why there is none
    }
    return future_;
  }

 private:
  // Sends and receives have none: nullptr.
  static FuturePtr future_of(const py::object& work) {
    if (!work.attr("has_future").cast<bool>()) return nullptr;
    return work.attr("get_future")().cast<std::shared_ptr<torch::jit::PythonFutureWrapper>>()->fut;
  }

  template <class Answer>
  Answer asked(const char* method) const {
    py::gil_scoped_acquire gil;
    return work_.get().attr(method)().cast<Answer>();
  }

  // Of lists of tensors at any depth.
  static void append(const py::handle& part, std::vector<at::Tensor>& tensors) {
    if (!py::isinstance<py::list>(part) && !py::isinstance<py::tuple>(part)) {
      tensors.push_back(part.cast<at::Tensor>());
      return;
    }
    for (const py::handle inner : part) append(inner, tensors);
  }

  const FuturePtr future_;
  const Object work_;
};

// An operation that was over before anybody could wait for it.
class WorkOver : public c10d::Work {
 public:
  explicit WorkOver(std::vector<at::Tensor> tensors) : tensors_(std::move(tensors)) {}

  bool wait(std::chrono::milliseconds) override { return true; }
  void synchronize() override {}
  bool isCompleted() override { return true; }
  bool isSuccess() const override { return true; }
  std::exception_ptr exception() const override { return nullptr; }
  std::vector<at::Tensor> result() override { return tensors_; }

  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    const std::lock_guard lock(mutex_);
    if (!future_) {
      future_ = c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()));
      future_->markCompleted(c10::IValue(tensors_));
    }
    return future_;
  }

 private:
  const std::vector<at::Tensor> tensors_;
  c10::intrusive_ptr<c10::ivalue::Future> future_;
};

// What a method of a policy has returned: a Work of PyTorch's own as it is, one that is written in Python held.
inline c10::intrusive_ptr<c10d::Work> work_of(py::object work) {
  const py::object type = py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(Py_TYPE(work.ptr())));
  if (type.attr("__module__").cast<std::string>() == "torch._C._distributed_c10d") {
    return work.cast<c10::intrusive_ptr<c10d::Work>>();
  }
  return c10::make_intrusive<WorkOfPython>(std::move(work));
}

}  // namespace gradlane::native
