// work.h - Work objects in C++ for operations that Python has started (any thread)
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
  PyErr_Format(PyExc_TimeoutError, "gradlane: the operation did not end within %d ms",
               static_cast<int>(timeout.count()));
  throw py::error_already_set();
}

using FuturePtr = c10::intrusive_ptr<c10::ivalue::Future>;

// Waits for a future and checks for signals meanwhile. No thread waits for the interpreter lock while it holds the
// mutex of `End`: the thread that completes the future may hold that lock.
class Waiting {
 public:
  explicit Waiting(FuturePtr future) : future_(std::move(future)), end_(std::make_shared<End>()) {
    future_->addCallback([end = end_](c10::ivalue::Future&) {
      const std::lock_guard lock(end->mutex);
      end->over = true;
      end->condition.notify_all();
    });
  }

  // Waits until the future is complete, for `timeout` at most; 0 means no limit. Returns the seconds that it took.
  // Raises TimeoutError, and what signal handlers raise.
  double wait(std::chrono::milliseconds timeout) {
    const auto begin = std::chrono::steady_clock::now();
    const auto deadline = begin + timeout;
    while (!is_over_within_a_slice()) {
      if (timeout.count() > 0 && std::chrono::steady_clock::now() >= deadline) raise_late(timeout);
      look_at_signals();
    }
    while (!interpreter_is_there()) pause();  // the interpreter has ended: sleeps until the process ends
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

  // Runs Python's signal handlers, in the main thread only. Raises what they raise, KeyboardInterrupt say.
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

// A Work that is written in Python. It holds the Python object, without which the object's methods would not be found.
// It waits in C++: at its end the interpreter terminates threads that wait for its lock, and objects on the stacks of
// such threads cannot be released.
class WorkOfPython : public c10d::Work {
 public:
  // The caller must hold the interpreter lock.
  explicit WorkOfPython(py::object work) : future_(future_of(work)), work_(std::move(work)) {}

  // Waits until the operation is over. Raises what the Python object's wait() raises.
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

  // Returns the rank that a receive got its data from.
  int sourceRank() const override { return asked<int>("source_rank"); }

  c10::intrusive_ptr<c10::ivalue::Future> getFuture() override {
    if (!future_) {
      py::gil_scoped_acquire gil;
      (void)work_.get().attr("get_future")();  // raises an error that says why there is none
    }
    return future_;
  }

 private:
  // Returns nullptr for sends and receives, which have no future.
  static FuturePtr future_of(const py::object& work) {
    if (!work.attr("has_future").cast<bool>()) return nullptr;
    return work.attr("get_future")().cast<std::shared_ptr<torch::jit::PythonFutureWrapper>>()->fut;
  }

  template <class Answer>
  Answer asked(const char* method) const {
    py::gil_scoped_acquire gil;
    return work_.get().attr(method)().cast<Answer>();
  }

  // Appends the tensors of `part`: one tensor, or lists of tensors nested to any depth.
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
class CompletedWork : public c10d::Work {
 public:
  explicit CompletedWork(std::vector<at::Tensor> tensors) : tensors_(std::move(tensors)) {}

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

// Returns the Work that a method of the policy has returned. A Work of PyTorch's own is returned unchanged; a Work that
// is written in Python becomes a WorkOfPython.
inline c10::intrusive_ptr<c10d::Work> work_of(py::object work) {
  const py::object type = py::reinterpret_borrow<py::object>(reinterpret_cast<PyObject*>(Py_TYPE(work.ptr())));
  if (type.attr("__module__").cast<std::string>() == "torch._C._distributed_c10d") {
    return work.cast<c10::intrusive_ptr<c10d::Work>>();
  }
  return c10::make_intrusive<WorkOfPython>(std::move(work));
}

}  // namespace gradlane::native
