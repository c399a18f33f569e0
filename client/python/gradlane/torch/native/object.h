// object.h - Python objects that C++ holds, and the interpreter lock (any thread)
#pragma once

#include <torch/csrc/utils/pybind.h>

#include <optional>
#include <utility>

namespace gradlane::native {

inline bool interpreter_is_there() {
#if PY_VERSION_HEX >= 0x030D0000
  return Py_IsInitialized() != 0 && Py_IsFinalizing() == 0;
#else
  return Py_IsInitialized() != 0 && _Py_IsFinalizing() == 0;
#endif
}

// Holds the interpreter lock while it lives, so that C++ may call Python. It also turns off torch.compile() for the
// thread: the Python code that is called must not be compiled with the model.
class Interpreter {
 public:
  Interpreter() : before_(set_eval_frame()(py::none())) {}
  ~Interpreter() { (void)set_eval_frame()(before_); }
  Interpreter(const Interpreter&) = delete;
  Interpreter& operator=(const Interpreter&) = delete;

 private:
  static py::handle set_eval_frame() {
    static const py::handle function =
        py::object(py::module_::import("torch._C._dynamo.eval_frame").attr("set_eval_frame")).release();
    return function;
  }

  py::gil_scoped_acquire gil_;
  py::object before_;  // the thread's function that compiles frames, which is restored at the end
};

// Releases the interpreter lock while it lives, if the thread holds it: a thread that waits for others must not hold
// it. PyTorch calls some methods with the lock, some without.
class Unlocked {
 public:
  Unlocked() {
    if (interpreter_is_there() && PyGILState_Check() != 0) release_.emplace();
  }

 private:
  std::optional<py::gil_scoped_release> release_;
};

// A reference that may be released in any thread, with or without the interpreter lock, and after the interpreter has
// ended. If it has ended, the object is leaked, as waiting for the lock would take forever.
class Object {
 public:
  explicit Object(py::object object) : object_(std::move(object)) {}
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;

  ~Object() {
    if (!interpreter_is_there()) {
      (void)object_.release();
      return;
    }
    py::gil_scoped_acquire gil;
    object_ = py::object();
  }

  // The caller must hold the interpreter lock.
  const py::object& get() const { return object_; }

 private:
  py::object object_;
};

}  // namespace gradlane::native
