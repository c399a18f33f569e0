// extension.cc - the module that gradlane.torch builds for PyTorch 2, which knows backends written in C++ alone
#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>

#include "backend.h"

using gradlane::native::Backend;

PYBIND11_MODULE(gradlane_native, module) {
  py::class_<Backend, c10d::Backend, c10::intrusive_ptr<Backend>>(module, "Backend")
      .def(py::init<py::object, int, int, std::string>(), py::arg("policy"), py::arg("rank"), py::arg("size"),
           py::arg("name"))
      .def_property_readonly("policy", &Backend::policy)
      .def_property_readonly("options", &Backend::getBackendOptions);
}
