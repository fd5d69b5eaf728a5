// SPDX-License-Identifier: MIT
//
// array.__dlpack__(): the structures of DLPack 1.0 (github.com/dmlc/dlpack), and what its `stream` argument asks for.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>

#include "py_array.hpp"
#include "py_objects.hpp"

namespace gpumap::python {

namespace {

constexpr int32_t device_cpu = 1;
constexpr int32_t device_cuda = 2;
constexpr uint64_t flag_read_only = 1;
constexpr uint64_t flag_copied = 2;

// The layout of these is DLPack's ABI.
struct Tensor {
  void* data;
  int32_t device_type;
  int32_t device_id;
  int32_t dims;
  uint8_t type_code;
  uint8_t type_bits;
  uint16_t type_lanes;
  int64_t* shape;
  int64_t* strides;  // elements
  uint64_t byte_offset;
};

struct ManagedTensor {
  static constexpr const char* capsule = "dltensor";
  Tensor tensor;
  void* manager;
  void (*deleter)(ManagedTensor* self);
};

struct ManagedTensorVersioned {
  static constexpr const char* capsule = "dltensor_versioned";
  uint32_t version_major;
  uint32_t version_minor;
  void* manager;
  void (*deleter)(ManagedTensorVersioned* self);
  uint64_t flags;
  Tensor tensor;
};

/// What a tensor keeps until its deleter is called, by any thread and without the GIL.
template <typename Managed>
struct Exported {
  Managed managed{};
  HoldRef hold;
  int64_t shape[max_dims] = {};
  int64_t strides[max_dims] = {};
};

template <typename Managed>
void delete_exported(Managed* managed) {
  auto* exported = static_cast<Exported<Managed>*>(managed->manager);
  let_go_anywhere(exported->hold);
  delete exported;
}

/// Nobody took the tensor out of the capsule.
template <typename Managed>
void delete_capsule(PyObject* capsule) {
  if (PyCapsule_IsValid(capsule, Managed::capsule) != 0) {
    auto* managed = static_cast<Managed*>(PyCapsule_GetPointer(capsule, Managed::capsule));
    managed->deleter(managed);
  }
}

struct Request {
  bool stream_given = false;
  void* stream = nullptr;
  bool without_order = false;  // stream -1
  long max_major = 0;
  bool device_given = false;
  long device_type = 0;
  long device_id = 0;
  int copy = -1;  // 0: never, 1: always, -1: where it has to be
};

/// A copy for a tensor: ordinary memory.
class CopyHold : public Hold {
 public:
  explicit CopyHold(size_t bytes) : bytes_(std::aligned_alloc(256, (bytes + 256) / 256 * 256)) {}
  [[nodiscard]] void* data() const { return bytes_; }
  gpumap_status write(uint64_t, const void*, uint64_t) override { return GPUMAP_ERROR_INVALID; }
  gpumap_status read(uint64_t, void*, uint64_t) override { return GPUMAP_ERROR_INVALID; }

 protected:
  void give_back() override { std::free(bytes_); }

 private:
  void* bytes_;
};

/// What is exported: the array, or a copy of it.
struct Source {
  CallHold hold;
  Geometry geometry;
  void* data = nullptr;
  bool on_cuda = false;
  int32_t ordinal = 0;
  bool read_only = false;
  bool copied = false;
};

template <typename Managed>
Exported<Managed>* export_tensor(const Source& source) {
  auto* exported = new (std::nothrow) Exported<Managed>;
  if (exported == nullptr) {
    PyErr_NoMemory();
    return nullptr;
  }
  const Geometry& geometry = source.geometry;
  exported->hold = source.hold;
  for (int dim = 0; dim < geometry.dims; ++dim) {
    exported->shape[dim] = geometry.shape[dim];
    exported->strides[dim] = geometry.stride[dim] / geometry.type->bytes;
  }
  Managed& managed = exported->managed;
  managed.manager = exported;
  managed.deleter = delete_exported<Managed>;
  managed.tensor = {source.data,
                    source.on_cuda ? device_cuda : device_cpu,
                    source.ordinal,
                    geometry.dims,
                    geometry.type->code,
                    static_cast<uint8_t>(geometry.type->bytes * 8),
                    1,
                    exported->shape,
                    exported->strides,
                    0};
  return exported;
}

template <typename Managed>
PyObject* capsule_of(Exported<Managed>* exported) {
  PyObject* capsule = PyCapsule_New(&exported->managed, Managed::capsule, delete_capsule<Managed>);
  if (capsule == nullptr) {
    delete exported;
  }
  return capsule;
}

bool read_pair(PyObject* pair, long& first, long& second) {
  const Ref one(PySequence_GetItem(pair, 0));
  const Ref two(one ? PySequence_GetItem(pair, 1) : nullptr);
  first = two ? PyLong_AsLong(one.get()) : -1;
  second = two ? PyLong_AsLong(two.get()) : -1;
  return PyErr_Occurred() == nullptr;
}

bool read_stream_argument(PyObject* value, Request& request) {
  if (value != Py_None && PyLong_Check(value) != 0) {
    const long number = PyLong_AsLong(value);
    if (number == -1 && PyErr_Occurred() == nullptr) {
      request.without_order = true;
      return true;
    }
    PyErr_Clear();
    if (number == 0) {
      raise_invalid("stream=0 may be either of CUDA's default streams: 1 is the legacy one, 2 the thread's own");
      return false;
    }
  }
  return read_stream(value, request.stream_given, request.stream);
}

bool read_copy_argument(PyObject* value, Request& request) {
  if (value != Py_None) {
    request.copy = PyObject_IsTrue(value);
  }
  return PyErr_Occurred() == nullptr;
}

bool read_argument(const char* name, PyObject* value, Request& request) {
  if (std::strcmp(name, "stream") == 0) {
    return read_stream_argument(value, request);
  }
  if (std::strcmp(name, "copy") == 0) {
    return read_copy_argument(value, request);
  }
  if (std::strcmp(name, "max_version") == 0) {
    long minor = 0;
    return value == Py_None || read_pair(value, request.max_major, minor);
  }
  if (std::strcmp(name, "dl_device") == 0) {
    request.device_given = value != Py_None;
    return value == Py_None || read_pair(value, request.device_type, request.device_id);
  }
  PyErr_Format(PyExc_TypeError, "__dlpack__() has no argument %s: it has stream, max_version, dl_device and copy",
               name);
  return false;
}

bool read_request(PyObject* const* arguments, Py_ssize_t count, PyObject* names, Request& request) {
  if (count > 1) {
    PyErr_SetString(PyExc_TypeError, "__dlpack__() takes keywords: stream, max_version, dl_device and copy");
    return false;
  }
  // The first versions of the protocol let `stream` stand alone.
  if (count == 1 && !read_argument("stream", arguments[0], request)) {
    return false;
  }
  const Py_ssize_t keywords = names == nullptr ? 0 : PyTuple_Size(names);
  for (Py_ssize_t at = 0; at < keywords; ++at) {
    const char* name = read_text(PyTuple_GetItem(names, at));
    if (name == nullptr || !read_argument(name, arguments[count + at], request)) {
      return false;
    }
  }
  return true;
}

void raise_buffer_error(const char* text) {
  PyErr_SetString(PyExc_BufferError, text);
}

/// Orders the consumer's work behind what fills the bytes, and the bytes' end behind that work.
bool order(Array* array, const Request& request) {
  Hold& hold = *array->hold.get();
  if (!array->place.read_only && !succeeded(hold.flush())) {
    return false;
  }
  if (request.without_order) {
    return true;
  }
  // None is the legacy default stream.
  void* stream = request.stream_given ? request.stream : reinterpret_cast<void*>(1);
  gpumap_status status = GPUMAP_OK;
  {
    const WithoutGil others;
    status = hold.wait_on_stream(stream);
  }
  if (!succeeded(status)) {
    return false;
  }
  hold.used_by(stream);
  return true;
}

bool copy_to_host(Array* array, Source& source) {
  const Geometry& from = array->geometry;
  auto* copy = new (std::nothrow) CopyHold(static_cast<size_t>(from.bytes()));
  const HoldRef hold(copy);
  if (copy == nullptr || copy->data() == nullptr) {
    PyErr_NoMemory();
    return false;
  }
  set_shape(source.geometry, from.type, from.shape, from.dims);
  if (!read_array(array, static_cast<uint8_t*>(copy->data()))) {
    return false;
  }
  source.hold = hold;
  source.data = copy->data();
  source.on_cuda = false;
  source.ordinal = 0;
  source.read_only = false;
  source.copied = true;
  return true;
}

/// Within the GPU, on the consumer's stream, behind which the array is then given back.
bool copy_on_device(Array* array, const Request& request, Source& source) {
  char selector[32];
  std::snprintf(selector, sizeof selector, "cuda:%d", static_cast<int>(array->place.cuda_ordinal));
  const auto bytes = static_cast<uint64_t>(array->geometry.span());
  gpumap_device device = nullptr;
  gpumap_memory memory = nullptr;
  gpumap_memory_options options = GPUMAP_INIT(gpumap_memory_options);
  options.placement = GPUMAP_PLACEMENT_DEVICE;
  if (!succeeded(gpumap_device_open(selector, 0, &device))) {
    return false;
  }
  const gpumap_status allocated = gpumap_memory_alloc(device, bytes > 0 ? bytes : 1, &options, &memory);
  gpumap_device_close(device);
  if (!succeeded(allocated)) {
    return false;
  }
  const HoldRef hold(new MemoryHold(memory, array->place.cuda_context));
  gpumap_memory_info info = GPUMAP_INIT(gpumap_memory_info);
  if (!succeeded(gpumap_memory_get_info(memory, &info))) {
    return false;
  }
  void* stream = request.stream_given ? request.stream : reinterpret_cast<void*>(1);
  const char* error = nullptr;
  if (!cuda_copy(array->place.cuda_context, info.cuda_address, array->place.cuda_address, bytes, stream, error)) {
    raise_status(GPUMAP_ERROR_NOT_SUPPORTED, error);
    return false;
  }
  hold->used_by(stream);
  source.hold->used_by(stream);  // the array's, which may be closed by now
  source.hold = hold;
  source.data = reinterpret_cast<void*>(info.cuda_address);
  source.read_only = false;
  source.copied = true;
  return true;
}

/// Fills `source` as the request wants it.
bool prepare(Array* array, const Request& request, Source& source) {
  const Place& place = array->place;
  const bool to_cpu = request.device_given && request.device_type == device_cpu && request.device_id == 0;
  source.hold = array->hold;
  source.geometry = array->geometry;
  source.read_only = place.read_only;
  source.on_cuda = !place.cpu;
  source.ordinal = place.cpu ? 0 : place.cuda_ordinal;
  source.data = place.cpu ? place.host : reinterpret_cast<void*>(place.cuda_address);
  if (request.device_given && !to_cpu &&
      (request.device_type != (source.on_cuda ? device_cuda : device_cpu) || request.device_id != source.ordinal)) {
    raise_buffer_error("the array is on another device: it is exported there, or copied to the CPU (dl_device=(1, 0))");
    return false;
  }
  if (place.cpu) {
    if (request.stream_given) {
      raise_buffer_error("the array is memory of the CPU, which has no streams: stream=None");
      return false;
    }
    gpumap_status status = GPUMAP_OK;
    return wait_in_parts(GPUMAP_FOREVER, status, [&](int64_t part_ns) { return source.hold->wait(part_ns); }) &&
           succeeded(status) && (request.copy != 1 || copy_to_host(array, source));
  }
  if (to_cpu) {
    if (request.copy == 0) {
      raise_buffer_error("memory of the GPU comes to the CPU by a copy alone: copy=None or True");
      return false;
    }
    return copy_to_host(array, source);
  }
  if (place.cuda_address == 0) {
    raise_buffer_error("the memory is on a GPU without CUDA, for which DLPack has no device: numpy() copies it");
    return false;
  }
  return order(array, request) && (request.copy != 1 || copy_on_device(array, request, source));
}

/// DLPack counts strides in elements.
bool has_whole_strides(const Geometry& geometry) {
  for (int dim = 0; dim < geometry.dims; ++dim) {
    if (geometry.shape[dim] > 1 && geometry.stride[dim] % geometry.type->bytes != 0) {
      raise_buffer_error("the rows are no whole elements apart, which DLPack does not know: numpy() copies the array");
      return false;
    }
  }
  return true;
}

}  // namespace

PyObject* array_dlpack(PyObject* self, PyObject* const* arguments, Py_ssize_t count, PyObject* names) {
  auto* array = reinterpret_cast<Array*>(self);
  Request request;
  Source source;
  // The arguments first: their code may close the array.
  if (!read_request(arguments, count, names, request) || !usable(array) || !prepare(array, request, source) ||
      !has_whole_strides(source.geometry)) {
    return nullptr;
  }
  if (request.max_major < 1) {
    auto* exported = export_tensor<ManagedTensor>(source);
    return exported == nullptr ? nullptr : capsule_of(exported);
  }
  auto* exported = export_tensor<ManagedTensorVersioned>(source);
  if (exported == nullptr) {
    return nullptr;
  }
  exported->managed.version_major = 1;
  exported->managed.version_minor = 0;
  exported->managed.flags = (source.read_only ? flag_read_only : 0) | (source.copied ? flag_copied : 0);
  return capsule_of(exported);
}

PyObject* array_dlpack_device(PyObject* self, PyObject* /*none*/) {
  auto* array = reinterpret_cast<Array*>(self);
  if (!usable(array)) {
    return nullptr;
  }
  const Place& place = array->place;
  if (!place.cpu && place.cuda_address == 0) {
    raise_buffer_error("the memory is on a GPU without CUDA, for which DLPack has no device: numpy() copies it");
    return nullptr;
  }
  return Py_BuildValue("(ii)", place.cpu ? device_cpu : device_cuda, place.cpu ? 0 : place.cuda_ordinal);
}

}  // namespace gpumap::python
