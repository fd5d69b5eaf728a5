// SPDX-License-Identifier: MIT
//
// What the types of the module know of each other: devices, buffers, rings and their slots.
#pragma once
#include "py_array.hpp"

namespace gpumap::python {

struct DeviceObject {
  PyObject_HEAD gpumap_device device;
  gpumap_device_info info;
};

/// A new reference to a gpumap.Device: of one, of a selector, or of None ("auto"). Null with an exception set.
Ref device_of(PyObject* device);
DeviceObject* as_device(const Ref& device);
/// A new gpumap.Device that takes over `device`.
Ref make_device(gpumap_device device);

/// A new gpumap.Buffer, which takes over `memory`. `layout`: null: bytes as `geometry` says.
PyObject* make_buffer(gpumap_memory memory, const gpumap_device_info& device, const Geometry& geometry,
                      const gpumap_layout* layout);

/// What a kernel reads: `memory` or `slot` is set. False with an exception set where the array is neither.
bool kernel_input(Array* array, gpumap_run_options& options);

bool add_device_types(PyObject* module);
bool add_ring_types(PyObject* module);
bool add_kernel_type(PyObject* module);
/// from_gst() and to_gst().
bool add_gst_functions(PyObject* module);

template <typename Function>
PyCFunction method(Function function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

/// Allocates an object of a type with the garbage collector's header, zeroed.
template <typename Object>
Object* new_object(PyTypeObject* type) {
  return reinterpret_cast<Object*>(PyType_GenericAlloc(type, 0));
}

/// Makes a type, with `base` or none, and puts it into the module.
PyTypeObject* add_type(PyObject* module, const char* name, PyType_Spec& spec, PyTypeObject* base = nullptr);

}  // namespace gpumap::python
