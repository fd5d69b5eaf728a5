// SPDX-License-Identifier: MIT
//
// What the types of the module know of each other: devices, buffers, rings and their slots.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>

#include "py_array.hpp"

// The few calls of CUDA's driver that gpumap.h has no equal for. libcuda is opened when the first array is on a GPU.

namespace gpumap::python {

/// Has `stream` wait on the GPU for what `other` has so far. False where CUDA refuses; `error` says why.
bool cuda_stream_after(void* context, void* stream, void* other, const char*& error);
/// Copies within the GPU, on `stream`.
bool cuda_copy(void* context, uint64_t to, uint64_t from, uint64_t bytes, void* stream, const char*& error);
/// Waits until `stream` has done what it has so far, 5 s at most. False where it has not.
bool cuda_stream_done(void* context, void* stream, const char*& error);
/// The ordinal and the context of the memory at `address`.
bool cuda_pointer_device(uint64_t address, int32_t& ordinal, void*& context, const char*& error);

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

// A ring as gpumap.Ring holds it, for its slots.

/// What a ring and its slots share; lives as long as the object of the ring.
struct RingState {
  HoldRef hold;                       // a RingHold; null: closed
  std::map<uint64_t, HoldRef> taken;  // SlotHolds by sequence: frames that are not there yet, for the next read()
  std::atomic<bool> stopped{false};   // or closed
  gpumap_device_info device{};
  bool consumer = false;   // from connect()
  bool copies = false;     // transport=pageable: a publish waits for the GPU
  Geometry geometry;       // of the slots that are written
  gpumap_layout layout{};  // of the caps that the ring was made with
  bool has_layout = false;
  uint64_t slot_bytes = 0;
  /// What the last frame's caps said, for the next one with the same.
  std::string last_caps;
  bool last_known = false;
  Geometry last_geometry;
  /// NumPy's view of each slot that was written, by its address: slots are few, and come again.
  std::unordered_map<void*, PyObject*> host_views;
};

struct RingObject {
  PyObject_HEAD RingState* state;
  PyObject* weak_references;
};

/// The caps of frames that are arrays, and the other way around. False where the caps are others.
std::string array_caps(const Geometry& geometry);
bool geometry_of_array_caps(const char* caps, Geometry& geometry);

/// True where the ring is open, else InvalidArgument is set.
bool ring_open(RingObject* ring);
inline gpumap_ring ring_of(RingObject* ring) {
  return static_cast<RingHold*>(ring->state->hold.get())->ring();
}

/// ring.write() and ring.read(): slots that `with` acquires or takes.
PyObject* ring_write(PyObject* self, PyObject* arguments, PyObject* keywords);
PyObject* ring_read(PyObject* self, PyObject* arguments, PyObject* keywords);
bool add_slot_type(PyObject* module);

}  // namespace gpumap::python
