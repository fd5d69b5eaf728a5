// SPDX-License-Identifier: MIT
//
// A ring as gpumap.Ring holds it, for its slots.
#pragma once
#include <string>
#include <unordered_map>

#include "py_objects.hpp"

namespace gpumap::python {

/// What a ring and its slots share; lives as long as the object of the ring.
struct RingState {
  HoldRef hold;  // a RingHold; null: closed
  gpumap_device_info device{};
  bool consumer = false;   // from connect()
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
