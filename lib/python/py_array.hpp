// SPDX-License-Identifier: MIT
//
// gpumap.Array: bytes that a Hold keeps, with a shape, as NumPy, DLPack and CUDA programs see them. Buffers, slots and
// frames of GStreamer's are arrays.
#pragma once
#include <cstdint>

#include "py_support.hpp"

namespace gpumap::python {

constexpr int max_dims = 8;

struct DataType {
  const char* name;     // as NumPy calls it
  const char* typestr;  // of __cuda_array_interface__
  const char* format;   // of the buffer protocol
  uint8_t code;         // of DLPack
  uint8_t bytes;
};

/// By its name, or from a data type of NumPy's, PyTorch's and so on. Null with an exception set.
const DataType* read_dtype(PyObject* dtype);
const DataType* dtype_named(const char* name);

/// Where the elements lie: strides in bytes.
struct Geometry {
  const DataType* type = nullptr;
  int dims = 0;
  int64_t shape[max_dims] = {};
  int64_t stride[max_dims] = {};

  bool operator==(const Geometry&) const = default;
  [[nodiscard]] int64_t elements() const;
  [[nodiscard]] int64_t bytes() const { return elements() * type->bytes; }
  /// From the first byte to behind the last; 0 where there are no elements.
  [[nodiscard]] int64_t span() const;
  [[nodiscard]] bool contiguous() const;
};
/// Row after row. False with an exception set: too many dimensions, or bytes.
bool set_shape(Geometry& geometry, const DataType* type, const int64_t* shape, int dims);
/// From an int or a sequence of them.
bool read_shape(PyObject* shape, const DataType* type, Geometry& geometry);
/// The first picture plane of a layout with one plane, samples by channels, or bytes.
Geometry geometry_of(const gpumap_layout& layout, uint64_t bytes);
/// Whether all planes lie in a frame of `bytes` bytes.
bool lies_in(const gpumap_layout& layout, uint64_t bytes);
/// Plane `index` of a picture.
Geometry plane_of(const gpumap_layout& layout, uint32_t index);

/// Calls `run(strided, packed, bytes)` for each run of bytes without a gap: where it begins in the strided elements,
/// and where it does when they lie row after row. `run` returns false to end.
template <typename Run>
bool for_each_run(const Geometry& geometry, const Run& run) {
  int outer = geometry.dims;
  int64_t bytes = geometry.type->bytes;
  while (outer > 0 && (geometry.stride[outer - 1] == bytes || geometry.shape[outer - 1] == 1)) {
    bytes *= geometry.shape[--outer];
  }
  int64_t at[max_dims] = {};
  int64_t packed = 0;
  if (bytes == 0 || geometry.elements() == 0) {
    return true;
  }
  while (true) {
    int64_t strided = 0;
    for (int dim = 0; dim < outer; ++dim) {
      strided += at[dim] * geometry.stride[dim];
    }
    if (!run(strided, packed, bytes)) {
      return false;
    }
    packed += bytes;
    int dim = outer - 1;
    while (dim >= 0 && ++at[dim] == geometry.shape[dim]) {
      at[dim--] = 0;
    }
    if (dim < 0) {
      return true;
    }
  }
}

/// Where an array lies and what may be done with it.
struct Place {
  void* host = nullptr;       // null: none
  uint64_t cuda_address = 0;  // 0: none
  int32_t cuda_ordinal = -1;
  void* cuda_context = nullptr;
  bool cpu = false;  // ordinary memory for the CPU: DLPack's device is the CPU
  bool read_only = false;
};
Place place_of(const gpumap_memory_info& memory, const gpumap_device_info& device);

struct Array {
  PyObject_HEAD HoldRef hold;  // null: closed, or its `with` has ended
  HoldRef host_hold;           // what host views keep instead, where it is not `hold`
  Place place;
  uint64_t offset;  // of the first byte in what is held
  Geometry geometry;
  gpumap_layout layout;  // of a frame
  bool has_layout;
  bool has_stream;  // `stream` has been made to wait for the bytes
  void* stream;
  PyObject* host_view;  // cached
  PyObject* weak_references;
};

extern PyTypeObject* array_type;
bool add_array_type(PyObject* module);

/// The members of C++ begin to live; Python has zeroed the bytes. Then, before the object is freed, they end.
void begin_array(Array* array);
void end_array(Array* array);
int traverse_array(Array* array, visitproc visit, void* arg);
/// The slots of types that add no members to an Array.
void array_dealloc(PyObject* self);
int array_traverse(PyObject* self, visitproc visit, void* arg);
/// Lets go of what it holds: afterwards every use raises.
void close_array(Array* array);
/// True where the array may be used; false with an exception set.
bool usable(Array* array);
/// A new gpumap.Array.
PyObject* make_array(const HoldRef& hold, const Place& place, uint64_t offset, const Geometry& geometry,
                     const gpumap_layout* layout);
/// A view of the host's bytes: of NumPy where that is installed, else a memoryview.
PyObject* make_host_view(const HoldRef& hold, void* host, const Geometry& geometry, bool read_only);

/// Copies the elements, row after row, to `packed`, when they are there. False with an exception set.
bool read_array(Array* array, uint8_t* packed);

/// array.__dlpack__(), in py_dlpack.cpp.
PyObject* array_dlpack(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names);
PyObject* array_dlpack_device(PyObject* self, PyObject* none);

}  // namespace gpumap::python
