// SPDX-License-Identifier: MIT
//
// The module gpumap._core. Loading it opens no driver.
#include "py_objects.hpp"

namespace gpumap::python {

PyTypeObject* add_type(PyObject* module, const char* name, PyType_Spec& spec, PyTypeObject* base) {
  PyObject* type =
      base == nullptr ? PyType_FromSpec(&spec) : PyType_FromSpecWithBases(&spec, reinterpret_cast<PyObject*>(base));
  if (type == nullptr || PyModule_AddObjectRef(module, name, type) != 0) {
    return nullptr;
  }
  return reinterpret_cast<PyTypeObject*>(type);
}

namespace {

PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                          "gpumap._core",
                          "gpumap's library in Python: see gpumap.",
                          -1,
                          nullptr,
                          nullptr,
                          nullptr,
                          nullptr,
                          nullptr};

}  // namespace

}  // namespace gpumap::python

PyMODINIT_FUNC PyInit__core() {
  using namespace gpumap::python;
  Ref module(PyModule_Create(&definition));
  const uint32_t version = gpumap_version();
  const Ref text(PyUnicode_FromFormat("%u.%u.%u", version >> 16, (version >> 8) & 255U, version & 255U));
  const bool complete =
      module && text && watch_process() && PyModule_AddObjectRef(module.get(), "__version__", text.get()) == 0 &&
      add_array_type(module.get()) && add_device_types(module.get()) && add_ring_types(module.get()) &&
      add_kernel_type(module.get()) && add_gst_functions(module.get());
  return complete ? module.release() : nullptr;
}
