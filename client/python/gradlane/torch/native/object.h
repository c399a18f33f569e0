// object.h - Python objects that C++ holds on to (any thread)
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

// Whoever has one may call Python: it has the interpreter lock. What is called runs as it is, also within
// torch.compile(), which would compile it with the model.
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
  py::object before_;  // what compiles frames of this thread
};

// Without the interpreter lock as long as it lives: whatever waits for others must not have it. PyTorch calls some
// methods with the lock, some without.
class Unlocked {
 public:
  Unlocked() {
    if (interpreter_is_there() && PyGILState_Check() != 0) release_.emplace();
  }

 private:
  std::optional<py::gil_scoped_release> release_;
};

// A reference that may be let go in any thread, whether it has the interpreter lock or not, and when the interpreter
// has ended: then it is left as it is, as waiting for the lock would be for ever.
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

  // With the interpreter lock held.
  const py::object& get() const { return object_; }

 private:
  py::object object_;
};

}  // namespace gradlane::native
