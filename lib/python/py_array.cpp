// SPDX-License-Identifier: MIT
#include "py_array.hpp"

#include <structmember.h>

#include <cstring>
#include <memory>
#include <new>

#include "py_objects.hpp"

namespace gpumap::python {

PyTypeObject* array_type = nullptr;

namespace {

PyTypeObject* host_memory_type = nullptr;

Array* as_array(PyObject* self) {
  return reinterpret_cast<Array*>(self);
}

// ---- Host views ----

/// What NumPy's views of the host's bytes lie on.
struct HostMemory {
  PyObject_HEAD HoldRef hold;
  void* host;
  Geometry geometry;
  bool read_only;
};

int host_memory_buffer(PyObject* self, Py_buffer* view, int flags) {
  auto* memory = reinterpret_cast<HostMemory*>(self);
  if (memory->read_only && (flags & PyBUF_WRITABLE) != 0) {
    PyErr_SetString(PyExc_BufferError, "a frame that was read may not be written");
    return -1;
  }
  const bool contiguous = memory->geometry.contiguous();
  if (!contiguous && (flags & PyBUF_STRIDES) != PyBUF_STRIDES) {
    PyErr_SetString(PyExc_BufferError, "the rows have gaps between them: ask for strides");
    return -1;
  }
  Geometry& geometry = memory->geometry;
  view->buf = memory->host;
  view->obj = new_ref(self);
  view->len = static_cast<Py_ssize_t>(geometry.bytes());
  view->itemsize = geometry.type->bytes;
  view->readonly = memory->read_only ? 1 : 0;
  view->format = (flags & PyBUF_FORMAT) != 0 ? const_cast<char*>(geometry.type->format) : nullptr;
  static_assert(sizeof(Py_ssize_t) == sizeof(int64_t));
  view->ndim = geometry.dims;
  view->shape = (flags & PyBUF_ND) != 0 ? reinterpret_cast<Py_ssize_t*>(geometry.shape) : nullptr;
  view->strides = (flags & PyBUF_STRIDES) == PyBUF_STRIDES ? reinterpret_cast<Py_ssize_t*>(geometry.stride) : nullptr;
  view->suboffsets = nullptr;
  view->internal = nullptr;
  return 0;
}

void host_memory_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  HoldRef& hold = reinterpret_cast<HostMemory*>(self)->hold;
  let_go(hold);
  hold.~HoldRef();
  PyObject_Free(self);
  Py_DECREF(type);
}

/// numpy.asarray; null without an exception where NumPy is not installed. Looked up once.
PyObject* numpy_asarray() {
  static PyObject* asarray = nullptr;
  static bool looked = false;
  if (!looked) {
    // Meanwhile other threads may look, too.
    const Ref numpy(PyImport_ImportModule("numpy"));
    Ref found(numpy ? PyObject_GetAttrString(numpy.get(), "asarray") : nullptr);
    PyErr_Clear();
    if (!looked) {
      asarray = found.release();
    }
    looked = true;
  }
  return asarray;
}

}  // namespace

PyObject* make_host_view(const HoldRef& hold, void* host, const Geometry& geometry, bool read_only) {
  auto* memory = PyObject_New(HostMemory, host_memory_type);
  if (memory == nullptr) {
    return nullptr;
  }
  new (&memory->hold) HoldRef(hold);
  memory->host = host;
  memory->geometry = geometry;
  memory->read_only = read_only;
  const Ref owner(reinterpret_cast<PyObject*>(memory));
  PyObject* asarray = numpy_asarray();
  return asarray != nullptr ? PyObject_CallFunctionObjArgs(asarray, owner.get(), nullptr)
                            : PyMemoryView_FromObject(owner.get());
}

Place place_of(const gpumap_memory_info& memory, const gpumap_device_info& device) {
  Place place;
  place.host = memory.host;
  place.cuda_address = memory.cuda_address;
  place.cuda_ordinal = device.cuda_ordinal;
  place.cuda_context = device.cuda_context;
  place.cpu = memory.host != nullptr &&
              (memory.software != 0 || (memory.cpu_readable != 0 && memory.placement == GPUMAP_PLACEMENT_HOST));
  return place;
}

// ---- Arrays ----

void begin_array(Array* array) {
  new (&array->hold) HoldRef;
  new (&array->host_hold) HoldRef;
  new (&array->place) Place;
  new (&array->geometry) Geometry;
}

void close_array(Array* array) {
  Py_CLEAR(array->host_view);
  let_go(array->host_hold);
  let_go(array->hold);
}

void end_array(Array* array) {
  if (array->weak_references != nullptr) {
    PyObject_ClearWeakRefs(reinterpret_cast<PyObject*>(array));
  }
  if (array->hold) {
    close_array(array);
  }
  Py_CLEAR(array->host_view);
  array->hold.~HoldRef();
  array->host_hold.~HoldRef();
}

int traverse_array(Array* array, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(reinterpret_cast<PyObject*>(array)));
  Py_VISIT(array->host_view);
  return 0;
}

bool usable(Array* array) {
  if (array->hold) {
    return !raise_if_forked();
  }
  raise_invalid("the array is closed: a slot is used within its `with`, a buffer before its close()");
  return false;
}

PyObject* make_array(const HoldRef& hold, const Place& place, uint64_t offset, const Geometry& geometry,
                     const gpumap_layout* layout) {
  auto* array = reinterpret_cast<Array*>(PyType_GenericAlloc(array_type, 0));
  if (array == nullptr) {
    return nullptr;
  }
  begin_array(array);
  array->hold = hold;
  array->place = place;
  array->offset = offset;
  array->geometry = geometry;
  if (layout != nullptr) {
    array->layout = *layout;
    array->has_layout = true;
  }
  return reinterpret_cast<PyObject*>(array);
}

bool read_array(Array* array, uint8_t* packed) {
  if (!usable(array)) {
    return false;  // it was closed while the caller made room
  }
  const CallHold hold(array->hold);  // another thread may close the array
  const Geometry& geometry = array->geometry;
  gpumap_status status = GPUMAP_OK;
  if (!wait_in_parts(GPUMAP_FOREVER, status, [&](int64_t part_ns) { return hold->wait(part_ns); })) {
    return false;
  }
  if (status == GPUMAP_OK && geometry.bytes() > 0) {
    const WithoutGil others;
    const auto bytes = static_cast<uint64_t>(geometry.span());
    if (geometry.contiguous()) {
      status = hold->read(array->offset, packed, bytes);
    } else {
      const std::unique_ptr<uint8_t[]> span(new (std::nothrow) uint8_t[bytes]);
      status = span == nullptr ? GPUMAP_ERROR_NO_MEMORY : hold->read(array->offset, span.get(), bytes);
      if (status == GPUMAP_OK) {
        for_each_run(geometry, [&](int64_t strided, int64_t at, int64_t run) {
          std::memcpy(packed + at, span.get() + strided, static_cast<size_t>(run));
          return true;
        });
      }
    }
  }
  return succeeded(status);
}

void array_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  end_array(as_array(self));
  PyObject_GC_Del(self);
  Py_DECREF(type);
}

int array_traverse(PyObject* self, visitproc visit, void* arg) {
  return traverse_array(as_array(self), visit, arg);
}

namespace {

PyObject* tuple_of(const int64_t* values, int count) {
  Ref tuple(PyTuple_New(count));
  for (int at = 0; tuple && at < count; ++at) {
    PyObject* value = PyLong_FromLongLong(values[at]);
    if (value == nullptr || PyTuple_SetItem(tuple.get(), at, value) != 0) {
      return nullptr;
    }
  }
  return tuple.release();
}

PyObject* array_shape(PyObject* self, void* /*none*/) {
  const Geometry& geometry = as_array(self)->geometry;
  return usable(as_array(self)) ? tuple_of(geometry.shape, geometry.dims) : nullptr;
}

PyObject* array_strides(PyObject* self, void* /*none*/) {
  const Geometry& geometry = as_array(self)->geometry;
  return usable(as_array(self)) ? tuple_of(geometry.stride, geometry.dims) : nullptr;
}

PyObject* array_ndim(PyObject* self, void* /*none*/) {
  return usable(as_array(self)) ? PyLong_FromLong(as_array(self)->geometry.dims) : nullptr;
}

PyObject* array_dtype(PyObject* self, void* /*none*/) {
  return usable(as_array(self)) ? PyUnicode_FromString(as_array(self)->geometry.type->name) : nullptr;
}

PyObject* array_nbytes(PyObject* self, void* /*none*/) {
  return usable(as_array(self)) ? PyLong_FromLongLong(as_array(self)->geometry.bytes()) : nullptr;
}

PyObject* array_readonly(PyObject* self, void* /*none*/) {
  return usable(as_array(self)) ? PyBool_FromLong(as_array(self)->place.read_only ? 1 : 0) : nullptr;
}

PyObject* array_closed(PyObject* self, void* /*none*/) {
  return PyBool_FromLong(as_array(self)->hold ? 0 : 1);
}

PyObject* array_cuda_address(PyObject* self, void* /*none*/) {
  return usable(as_array(self)) ? PyLong_FromUnsignedLongLong(as_array(self)->place.cuda_address) : nullptr;
}

PyObject* array_host(PyObject* self, void* /*none*/) {
  Array* array = as_array(self);
  if (!usable(array)) {
    return nullptr;
  }
  if (array->place.read_only && array->place.host != nullptr) {
    gpumap_status status = GPUMAP_OK;
    const CallHold hold(array->hold);  // what fills it may be under way
    if (!wait_in_parts(GPUMAP_FOREVER, status, [&](int64_t part_ns) { return hold->wait(part_ns); }) ||
        !succeeded(status)) {
      return nullptr;
    }
    if (!usable(array)) {
      return nullptr;
    }
  }
  if (array->host_view == nullptr) {
    if (array->place.host == nullptr) {
      return raise_status(GPUMAP_ERROR_NOT_SUPPORTED,
                          "the CPU cannot reach this memory: numpy() copies it, placement=\"bar\" can be reached");
    }
    Ref made(make_host_view(array->host_hold ? array->host_hold : array->hold, array->place.host, array->geometry,
                            array->place.read_only));
    // NumPy's code let other threads run: one may have made it, too, or closed the array.
    if (!made || array->host_view != nullptr || !array->hold) {
      return made.release();
    }
    array->host_view = made.release();
  }
  return new_ref(array->host_view);
}

PyObject* array_cuda_interface(PyObject* self, void* /*none*/) {
  Array* array = as_array(self);
  if (!usable(array)) {
    return nullptr;
  }
  const Place& place = array->place;
  if (place.cpu || place.cuda_address == 0) {
    PyErr_SetString(PyExc_AttributeError, "__cuda_array_interface__: the array is not in CUDA's memory");
    return nullptr;
  }
  if (!place.read_only && !succeeded(array->hold->flush())) {
    return nullptr;
  }
  if (!array->has_stream) {
    gpumap_status status = GPUMAP_OK;
    const CallHold hold(array->hold);
    if (!wait_in_parts(GPUMAP_FOREVER, status, [&](int64_t part_ns) { return hold->wait(part_ns); }) ||
        !succeeded(status)) {
      return nullptr;
    }
  }
  const Geometry& geometry = array->geometry;
  const Ref shape(tuple_of(geometry.shape, geometry.dims));
  const Ref strides(geometry.contiguous() ? new_ref(Py_None) : tuple_of(geometry.stride, geometry.dims));
  // 0 is not allowed there: the legacy default stream is 1.
  void* stream = array->stream == nullptr ? reinterpret_cast<void*>(1) : array->stream;
  const Ref order(array->has_stream ? PyLong_FromVoidPtr(stream) : new_ref(Py_None));
  if (!shape || !strides || !order) {
    return nullptr;
  }
  return Py_BuildValue("{sOsss(KO)sOsisO}", "shape", shape.get(), "typestr", geometry.type->typestr, "data",
                       static_cast<unsigned long long>(place.cuda_address), place.read_only ? Py_True : Py_False,
                       "strides", strides.get(), "version", 3, "stream", order.get());
}

/// Elements without a dimension: kind and size, as a format of the buffer protocol says.
char kind_of(const char* format) {
  if (format == nullptr) {
    return 'u';
  }
  if (*format == '@' || *format == '=' || *format == '<') {
    ++format;
  }
  if (*format == 'Z') {
    return 'c';
  }
  const bool single = *format != '\0' && format[1] == '\0';
  if (single && std::strchr("bhilqn", *format) != nullptr) {
    return 'i';
  }
  if (single && std::strchr("BHILQNc", *format) != nullptr) {
    return 'u';
  }
  if (single && std::strchr("efdg", *format) != nullptr) {
    return 'f';
  }
  return single && *format == '?' ? '?' : 'x';
}

bool fits(const Geometry& geometry, const Py_buffer& from) {
  const bool raw = from.itemsize == 1 && kind_of(from.format) == 'u' && from.ndim <= 1;
  const bool same_type =
      from.itemsize == geometry.type->bytes && kind_of(from.format) == kind_of(geometry.type->format);
  if (!raw && !same_type) {
    raise_invalid("elements of %zd bytes, format %.20s, into an array of %s: convert them first", from.itemsize,
                  from.format == nullptr ? "B" : from.format, geometry.type->name);
    return false;
  }
  bool same_shape = from.ndim <= 1 || geometry.dims <= 1 || from.ndim == geometry.dims;
  for (int dim = 0; same_shape && from.ndim > 1 && dim < geometry.dims && geometry.dims > 1; ++dim) {
    same_shape = from.shape[dim] == geometry.shape[dim];
  }
  if (from.len != geometry.bytes() || !same_shape) {
    raise_invalid("%lld bytes in %d dimensions into an array of %lld in %d: the shapes have to be the same",
                  static_cast<long long>(from.len), from.ndim, static_cast<long long>(geometry.bytes()), geometry.dims);
    return false;
  }
  return true;
}

/// The bytes of an object, row after row.
class Bytes {
 public:
  Bytes() = default;
  Bytes(const Bytes&) = delete;
  Bytes& operator=(const Bytes&) = delete;
  ~Bytes() {
    if (got_ && !interpreter_ends()) {
      PyBuffer_Release(&view_);
    }
  }
  bool get(PyObject* object) {
    const Ref exporter = with_buffer(object);
    got_ = exporter && PyObject_GetBuffer(exporter.get(), &view_, PyBUF_FULL_RO) == 0;
    if (!got_) {
      return false;
    }
    data_ = static_cast<const uint8_t*>(view_.buf);
    if (PyBuffer_IsContiguous(&view_, 'C') == 0) {
      packed_.reset(new (std::nothrow) uint8_t[static_cast<size_t>(view_.len)]);
      if (packed_ == nullptr || PyBuffer_ToContiguous(packed_.get(), &view_, view_.len, 'C') != 0) {
        PyErr_NoMemory();
        return false;
      }
      data_ = packed_.get();
    }
    return true;
  }
  [[nodiscard]] const Py_buffer& view() const { return view_; }
  [[nodiscard]] const uint8_t* data() const { return data_; }

 private:
  Py_buffer view_{};
  std::unique_ptr<uint8_t[]> packed_;
  const uint8_t* data_ = nullptr;
  bool got_ = false;
};

PyObject* array_write(PyObject* self, PyObject* object) {
  Array* array = as_array(self);
  Bytes from;
  // The object first: its code may close the array.
  if (!from.get(object) || !usable(array)) {
    return nullptr;
  }
  if (array->place.read_only) {
    return raise_invalid("a frame that was read may not be written");
  }
  if (!fits(array->geometry, from.view())) {
    return nullptr;
  }
  const CallHold hold(array->hold);
  gpumap_status status = GPUMAP_OK;
  {
    const WithoutGil others;
    for_each_run(array->geometry, [&](int64_t strided, int64_t packed, int64_t bytes) {
      status = hold->write(array->offset + static_cast<uint64_t>(strided), from.data() + packed,
                           static_cast<uint64_t>(bytes));
      return status == GPUMAP_OK;
    });
  }
  if (!succeeded(status)) {
    return nullptr;
  }
  return new_ref(Py_None);
}

PyObject* array_tobytes(PyObject* self, PyObject* /*none*/) {
  Array* array = as_array(self);
  if (!usable(array)) {
    return nullptr;
  }
  Ref bytes(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(array->geometry.bytes())));
  return bytes && read_array(array, reinterpret_cast<uint8_t*>(PyBytes_AsString(bytes.get()))) ? bytes.release()
                                                                                               : nullptr;
}

PyObject* array_numpy(PyObject* self, PyObject* /*none*/) {
  Array* array = as_array(self);
  const Ref numpy(usable(array) ? PyImport_ImportModule("numpy") : nullptr);
  const Geometry& geometry = array->geometry;
  const Ref shape(numpy ? tuple_of(geometry.shape, geometry.dims) : nullptr);
  const bool bits = geometry.type != nullptr && std::strcmp(geometry.type->name, "bfloat16") == 0;
  Ref made(shape ? PyObject_CallMethod(numpy.get(), "empty", "Os", shape.get(), bits ? "uint16" : geometry.type->name)
                 : nullptr);
  Py_buffer view;
  if (!made || PyObject_GetBuffer(made.get(), &view, PyBUF_WRITABLE) != 0) {
    return nullptr;
  }
  const bool read = read_array(array, static_cast<uint8_t*>(view.buf));
  PyBuffer_Release(&view);
  return read ? made.release() : nullptr;
}

PyObject* array_dunder_array(PyObject* self, PyObject* arguments, PyObject* keywords) {
  static const char* names[] = {"dtype", "copy", nullptr};
  PyObject* dtype = Py_None;
  PyObject* copy = Py_None;
  if (PyArg_ParseTupleAndKeywords(arguments, keywords, "|OO", const_cast<char**>(names), &dtype, &copy) == 0) {
    return nullptr;
  }
  Array* array = as_array(self);
  const bool view = array->place.cpu && copy != Py_True;
  if (!view && copy == Py_False) {
    PyErr_SetString(PyExc_ValueError, "the array is in memory that the CPU does not read: it can only be copied");
    return nullptr;
  }
  Ref made(view ? array_host(self, nullptr) : array_numpy(self, nullptr));
  return !made || dtype == Py_None ? made.release() : PyObject_CallMethod(made.get(), "astype", "O", dtype);
}

PyObject* array_view(PyObject* self, PyObject* arguments, PyObject* keywords) {
  static const char* names[] = {"shape", "dtype", "offset", nullptr};
  Array* array = as_array(self);
  PyObject* shape = nullptr;
  PyObject* dtype = nullptr;
  long long offset = 0;
  if (PyArg_ParseTupleAndKeywords(arguments, keywords, "O|O$L", const_cast<char**>(names), &shape, &dtype, &offset) ==
      0) {
    return nullptr;
  }
  Geometry geometry;
  const DataType* type = dtype == nullptr || dtype == Py_None ? array->geometry.type : read_dtype(dtype);
  if (type == nullptr || !read_shape(shape, type, geometry) || !usable(array)) {
    return nullptr;
  }
  const int64_t bytes = array->geometry.bytes();
  if (!array->geometry.contiguous()) {
    return raise_invalid("the rows have gaps between them, and a view has none: view a plane, or copy by numpy()");
  }
  if (offset < 0 || offset > bytes || geometry.bytes() > bytes - offset || offset % type->bytes != 0) {
    return raise_invalid("a view of %lld bytes at %lld leaves the array's %lld bytes, or its elements' alignment",
                         static_cast<long long>(geometry.bytes()), offset, static_cast<long long>(bytes));
  }
  Place place = array->place;
  place.host = place.host == nullptr ? nullptr : static_cast<uint8_t*>(place.host) + offset;
  place.cuda_address += place.cuda_address == 0 ? 0 : static_cast<uint64_t>(offset);
  return make_array(array->hold, place, array->offset + static_cast<uint64_t>(offset), geometry, nullptr);
}

PyObject* array_planes(PyObject* self, void* /*none*/) {
  Array* array = as_array(self);
  if (!usable(array)) {
    return nullptr;
  }
  if (!array->has_layout || array->layout.planes == 0) {
    return raise_invalid("the array is no picture: planes are those of a frame whose caps, or layout, are a picture's");
  }
  Ref planes(PyTuple_New(static_cast<Py_ssize_t>(array->layout.planes)));
  for (uint32_t index = 0; planes && index < array->layout.planes; ++index) {
    Place place = array->place;
    const uint64_t offset = array->layout.offset[index] - array->layout.offset[0];
    place.host = place.host == nullptr ? nullptr : static_cast<uint8_t*>(place.host) + offset;
    place.cuda_address += place.cuda_address == 0 ? 0 : offset;
    PyObject* plane = make_array(array->hold, place, array->offset + offset, plane_of(array->layout, index), nullptr);
    if (plane == nullptr || PyTuple_SetItem(planes.get(), static_cast<Py_ssize_t>(index), plane) != 0) {
      return nullptr;
    }
  }
  return planes.release();
}

PyObject* array_flush(PyObject* self, PyObject* /*none*/) {
  if (!usable(as_array(self)) || !succeeded(as_array(self)->hold->flush())) {
    return nullptr;
  }
  return new_ref(Py_None);
}

PyObject* array_wait(PyObject* self, PyObject* arguments, PyObject* keywords) {
  static const char* names[] = {"timeout", nullptr};
  PyObject* seconds = Py_None;
  int64_t timeout_ns = 0;
  gpumap_status status = GPUMAP_OK;
  if (PyArg_ParseTupleAndKeywords(arguments, keywords, "|O", const_cast<char**>(names), &seconds) == 0 ||
      !read_timeout(seconds, timeout_ns) || !usable(as_array(self))) {
    return nullptr;
  }
  const CallHold hold(as_array(self)->hold);
  if (!wait_in_parts(timeout_ns, status, [&](int64_t part_ns) { return hold->wait(part_ns); })) {
    return nullptr;
  }
  if (status == GPUMAP_TIMEOUT) {
    return raise_status(status, "the GPU work that fills the array has not ended within the timeout");
  }
  if (!succeeded(status)) {
    return nullptr;
  }
  return new_ref(Py_None);
}

PyObject* array_close(PyObject* self, PyObject* /*none*/) {
  if (as_array(self)->hold) {
    close_array(as_array(self));
  }
  return new_ref(Py_None);
}

PyObject* array_repr(PyObject* self) {
  Array* array = as_array(self);
  const Ref name(PyObject_GetAttrString(reinterpret_cast<PyObject*>(Py_TYPE(self)), "__name__"));
  if (!name || !array->hold) {
    return name ? PyUnicode_FromFormat("<gpumap.%U, closed>", name.get()) : nullptr;
  }
  const Ref shape(tuple_of(array->geometry.shape, array->geometry.dims));
  return shape ? PyUnicode_FromFormat("<gpumap.%U %S of %s>", name.get(), shape.get(), array->geometry.type->name)
               : nullptr;
}

PyMethodDef array_methods[] = {
    {"__dlpack__", method(array_dlpack), METH_FASTCALL | METH_KEYWORDS,
     "__dlpack__($self, *, stream=None, max_version=None, dl_device=None, copy=None)\n--\n\n"
     "A DLPack capsule. The bytes stay as they are until its tensor is gone and `stream` is done with it."},
    {"__dlpack_device__", array_dlpack_device, METH_NOARGS,
     "__dlpack_device__($self, /)\n--\n\n(2, ordinal) for CUDA, (1, 0) for memory of the CPU."},
    {"__array__", method(array_dunder_array), METH_VARARGS | METH_KEYWORDS,
     "__array__($self, dtype=None, copy=None)\n--\n\nFor numpy.asarray(): a view of memory of the CPU, else a copy."},
    {"write", array_write, METH_O,
     "write($self, x, /)\n--\n\nCopies all of the array from `x`, an array, tensor of the CPU or bytes of the same "
     "size: with streaming stores, by as many threads as pay, without the GIL. Much faster than host[:] = x from "
     "some 100 KB on. Raises InvalidArgument for another size and for frames that were read, NotSupported for memory "
     "that the CPU cannot write."},
    {"numpy", array_numpy, METH_NOARGS,
     "numpy($self, /)\n--\n\nA copy as a NumPy array; from a GPU by DMA. Waits for the kernels that fill the array. "
     "Raises ImportError without NumPy, DeviceLost."},
    {"tobytes", array_tobytes, METH_NOARGS, "tobytes($self, /)\n--\n\nA copy as bytes, row after row."},
    {"view", method(array_view), METH_VARARGS | METH_KEYWORDS,
     "view($self, shape, dtype=None, *, offset=0)\n--\n\nThe same bytes, from `offset` on, with another shape. It "
     "keeps them as a tensor does, also behind the end of a `with`. Raises InvalidArgument for more bytes than there "
     "are, and where rows have gaps between them."},
    {"flush", array_flush, METH_NOARGS,
     "flush($self, /)\n--\n\nMakes what was written through `host` visible to GPU work from now on. Slots do so "
     "when they are published, and DLPack when it exports."},
    {"wait", method(array_wait), METH_VARARGS | METH_KEYWORDS,
     "wait($self, timeout=None)\n--\n\nReturns when the kernels that fill the array are done. Raises Timeout after "
     "seconds."},
    {"close", array_close, METH_NOARGS,
     "close($self, /)\n--\n\nGives the bytes back, when no view or tensor of them is left. Further use raises. May "
     "be called twice."},
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef array_properties[] = {
    {"shape", array_shape, nullptr, "Elements in each dimension.", nullptr},
    {"strides", array_strides, nullptr, "Bytes from an element to the next, in each dimension.", nullptr},
    {"ndim", array_ndim, nullptr, "The number of dimensions.", nullptr},
    {"dtype", array_dtype, nullptr, "The elements' type, as NumPy calls it: \"uint8\".", nullptr},
    {"nbytes", array_nbytes, nullptr, "Bytes of the elements.", nullptr},
    {"readonly", array_readonly, nullptr, "Whether the array may only be read.", nullptr},
    {"closed", array_closed, nullptr, "Whether close() was called, or the `with` has ended.", nullptr},
    {"cuda_address", array_cuda_address, nullptr,
     "The address in the primary context of the GPU; 0 where there is no CUDA.", nullptr},
    {"host", array_host, nullptr,
     "A NumPy view of the bytes (without NumPy a memoryview), to write. On a GPU, reading through it is a thousand "
     "times slower than writing: numpy() copies by DMA. Raises NotSupported where the CPU does not reach the memory.",
     nullptr},
    {"planes", array_planes, nullptr, "The planes of a picture, each an Array: for NV12 (h, w) and (h/2, w/2, 2).",
     nullptr},
    {"__cuda_array_interface__", array_cuda_interface, nullptr,
     "For CuPy, Numba and PyTorch. It does not keep the bytes: use it within the `with`.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyMemberDef array_members[] = {
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Array, weak_references), READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyType_Slot array_slots[] = {
    {Py_tp_doc, const_cast<char*>("Bytes in GPU memory, or memory that a GPU reads, with a shape and a data type.\n\n"
                                  "Given to torch.from_dlpack(), cupy.from_dlpack(), jax.dlpack.from_dlpack() and "
                                  "numpy.from_dlpack() without a copy. May be used from several threads.")},
    {Py_tp_dealloc, reinterpret_cast<void*>(array_dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(array_traverse)},
    {Py_tp_repr, reinterpret_cast<void*>(array_repr)},
    {Py_tp_methods, array_methods},
    {Py_tp_getset, array_properties},
    {Py_tp_members, array_members},
    {0, nullptr},
};

PyType_Spec array_spec = {
    "gpumap.Array", sizeof(Array), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_DISALLOW_INSTANTIATION, array_slots};

PyType_Slot host_memory_slots[] = {
    {Py_tp_doc, const_cast<char*>("What a NumPy view of an array's bytes lies on.")},
    {Py_tp_dealloc, reinterpret_cast<void*>(host_memory_dealloc)},
    {Py_bf_getbuffer, reinterpret_cast<void*>(host_memory_buffer)},
    {0, nullptr},
};

PyType_Spec host_memory_spec = {"gpumap._core.HostMemory", sizeof(HostMemory), 0,
                                Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, host_memory_slots};

}  // namespace

bool add_array_type(PyObject* module) {
  array_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&array_spec));
  host_memory_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&host_memory_spec));
  return array_type != nullptr && host_memory_type != nullptr &&
         PyModule_AddObjectRef(module, "Array", reinterpret_cast<PyObject*>(array_type)) == 0;
}

}  // namespace gpumap::python
