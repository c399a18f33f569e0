// extension.cc - the module that gradlane.torch builds. PyTorch accepts only backends that are written in C++.
#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

#include "backend.h"

using gradlane::native::Backend;
using gradlane::native::Fallback;
using gradlane::native::FastPath;
using gradlane::native::FastPathSwitch;

PYBIND11_MODULE(gradlane_native, module) {
  py::class_<FastPath, std::shared_ptr<FastPath>>(module, "FastPath")
      .def(py::init<py::object, uint64_t, uint64_t>(), py::arg("connection"), py::arg("add"), py::arg("context"))
      .def("pause", &FastPath::pause, py::arg("paused"))
      .def("take_counts", &FastPath::take_counts)
      .def("set", &FastPath::set, py::arg("codec"), py::arg("strategy"), py::arg("coded"), py::arg("hashed"));
  py::class_<FastPathSwitch, std::shared_ptr<FastPathSwitch>>(module, "FastPathSwitch")
      .def(py::init<>())
      .def("close", &FastPathSwitch::close);
  py::class_<Fallback, std::shared_ptr<Fallback>>(module, "Fallback")
      .def(py::init<py::object, int, int>(), py::arg("state"), py::arg("rank"), py::arg("size"));
  py::class_<Backend, c10d::Backend, c10::intrusive_ptr<Backend>>(module, "Backend")
      .def(py::init<py::object, int, int, std::string, std::shared_ptr<FastPath>, std::shared_ptr<FastPathSwitch>,
                    std::shared_ptr<Fallback>, std::string>(),
           py::arg("policy"), py::arg("rank"), py::arg("size"), py::arg("name"), py::arg("fast_path"), py::arg("gate"),
           py::arg("fallback"), py::arg("apart"))
      .def_property_readonly("policy", &Backend::policy)
      .def("abort", &Backend::abort, py::call_guard<py::gil_scoped_release>())
      .def("set_timeout", &Backend::setTimeout, py::call_guard<py::gil_scoped_release>())
      .def_property_readonly("options", &Backend::getBackendOptions);
}
