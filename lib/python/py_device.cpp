// SPDX-License-Identifier: MIT
//
// gpumap.Device, and what is allocated on one: gpumap.Buffer, gpumap.Pool.
#include <cstdio>
#include <cstring>
#include <new>

#include "py_objects.hpp"

namespace gpumap::python {

namespace {

PyTypeObject* device_type = nullptr;
PyTypeObject* buffer_type = nullptr;
PyTypeObject* pool_type = nullptr;

constexpr const char* backend_names[] = {"none", "cuda", "vulkan"};

PyObject* info_dict(const gpumap_device_info& info) {
  char uuid[37];
  char* at = uuid;
  for (int byte = 0; byte < 16; ++byte) {
    const bool dash = byte == 4 || byte == 6 || byte == 8 || byte == 10;
    at += std::snprintf(at, 4, dash ? "-%02x" : "%02x", info.uuid[byte]);
  }
  return Py_BuildValue("{sisssssssOsisssKsKsKss}", "index", info.index, "name", info.name, "uuid", uuid, "pci_address",
                       info.pci_address, "software", info.software != 0 ? Py_True : Py_False, "cuda_ordinal",
                       info.cuda_ordinal, "backend", backend_names[info.backend < 3 ? info.backend : 0], "memory_bytes",
                       static_cast<unsigned long long>(info.memory_bytes), "window_bytes",
                       static_cast<unsigned long long>(info.window_bytes), "window_free_bytes",
                       static_cast<unsigned long long>(info.window_free_bytes), "reason", info.reason);
}

Ref open_device(const char* selector, uint32_t flags) {
  gpumap_device device = nullptr;
  gpumap_status status = GPUMAP_OK;
  {
    const WithoutGil others;  // the first one takes a third of a second
    status = gpumap_device_open(selector, flags, &device);
  }
  return succeeded(status) ? make_device(device) : Ref();
}

PyObject* device_new(PyTypeObject* /*type*/, PyObject* arguments, PyObject* keywords) {
  static const char* names[] = {"selector", "require_coherent", "require_cuda", nullptr};
  const char* selector = "auto";
  int coherent = 0;
  int cuda = 0;
  if (PyArg_ParseTupleAndKeywords(arguments, keywords, "|z$pp", const_cast<char**>(names), &selector, &coherent,
                                  &cuda) == 0) {
    return nullptr;
  }
  const uint32_t flags = (coherent != 0 ? uint32_t{GPUMAP_DEVICE_REQUIRE_COHERENT} : 0U) |
                         (cuda != 0 ? uint32_t{GPUMAP_DEVICE_REQUIRE_CUDA} : 0U);
  return open_device(selector, flags).release();
}

void device_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  gpumap_device_close(reinterpret_cast<DeviceObject*>(self)->device);
  PyObject_Free(self);
  Py_DECREF(type);
}

PyObject* device_info(PyObject* self, void* /*none*/) {
  gpumap_device_info info = GPUMAP_INIT(gpumap_device_info);
  return succeeded(gpumap_device_get_info(reinterpret_cast<DeviceObject*>(self)->device, &info)) ? info_dict(info)
                                                                                                 : nullptr;
}

PyObject* device_check(PyObject* self, PyObject* /*none*/) {
  if (!succeeded(gpumap_device_check(reinterpret_cast<DeviceObject*>(self)->device))) {
    return nullptr;
  }
  return new_ref(Py_None);
}

PyObject* device_repr(PyObject* self) {
  const gpumap_device_info& info = reinterpret_cast<DeviceObject*>(self)->info;
  return PyUnicode_FromFormat("<gpumap.Device %d: %s>", static_cast<int>(info.index), info.name);
}

PyMethodDef device_methods[] = {
    {"check", device_check, METH_NOARGS,
     "check($self, /)\n--\n\nRaises DeviceLost, with the reason, when a kernel has faulted: nothing on the device "
     "works any more then, until the process ends."},
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef device_properties[] = {
    {"info", device_info, nullptr,
     "A dict: index, name, uuid, pci_address, software, cuda_ordinal (-1: no CUDA), backend, memory_bytes, "
     "window_bytes, window_free_bytes, reason.",
     nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyType_Slot device_slots[] = {
    {Py_tp_doc, const_cast<char*>(
                    "Device(selector=\"auto\", *, require_coherent=False, require_cuda=False)\n--\n\n"
                    "A GPU, or Vulkan on the CPU. selector: \"auto\", an index (\"0\"), \"cuda:1\", \"current\" (the "
                    "CUDA context that is current in this thread), a UUID or a PCI address. One context serves a "
                    "process, however often the device is opened. Raises NoDriver, NoDevice, NotSupported.")},
    {Py_tp_new, reinterpret_cast<void*>(device_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(device_dealloc)},
    {Py_tp_repr, reinterpret_cast<void*>(device_repr)},
    {Py_tp_methods, device_methods},
    {Py_tp_getset, device_properties},
    {0, nullptr},
};
PyType_Spec device_spec = {"gpumap.Device", sizeof(DeviceObject), 0, Py_TPFLAGS_DEFAULT, device_slots};

// ---- Buffers ----

bool read_placement(const char* name, uint32_t& placement) {
  constexpr const char* names[] = {"bar", "device", "host"};
  for (uint32_t at = 0; at < 3; ++at) {
    if (std::strcmp(name, names[at]) == 0) {
      placement = at;  // as enum gpumap_placement
      return true;
    }
  }
  raise_invalid(
      "unknown placement %.50s: \"bar\" (the CPU writes, the GPU reads), \"device\" (no host view) or \"host\" "
      "(results that the CPU reads)",
      name);
  return false;
}

PyObject* empty(PyObject* /*module*/, PyObject* arguments, PyObject* keywords) {
  static const char* names[] = {"shape", "dtype", "device", "placement", "require_coherent", nullptr};
  PyObject* shape = nullptr;
  PyObject* dtype = nullptr;
  PyObject* selector = Py_None;
  const char* placement = "bar";
  int coherent = 0;
  if (PyArg_ParseTupleAndKeywords(arguments, keywords, "O|O$Osp", const_cast<char**>(names), &shape, &dtype, &selector,
                                  &placement, &coherent) == 0) {
    return nullptr;
  }
  gpumap_memory_options options = GPUMAP_INIT(gpumap_memory_options);
  Geometry geometry;
  const DataType* type = dtype == nullptr ? dtype_named("uint8") : read_dtype(dtype);
  if (type == nullptr || !read_shape(shape, type, geometry) || !read_placement(placement, options.placement)) {
    return nullptr;
  }
  options.flags = coherent != 0 ? uint32_t{GPUMAP_MEMORY_REQUIRE_COHERENT} : 0U;
  const Ref device = device_of(selector);
  if (!device) {
    return nullptr;
  }
  gpumap_memory memory = nullptr;
  gpumap_status status = GPUMAP_OK;
  // An array without elements has an address, too.
  const auto bytes = static_cast<uint64_t>(geometry.bytes() > 0 ? geometry.bytes() : 1);
  {
    const WithoutGil others;
    status = gpumap_memory_alloc(as_device(device)->device, bytes, &options, &memory);
  }
  return succeeded(status) ? make_buffer(memory, as_device(device)->info, geometry, nullptr) : nullptr;
}

PyObject* buffer_enter(PyObject* self, PyObject* /*none*/) {
  return usable(reinterpret_cast<Array*>(self)) ? new_ref(self) : nullptr;
}

PyObject* buffer_exit(PyObject* self, PyObject* /*arguments*/) {
  close_array(reinterpret_cast<Array*>(self));
  return new_ref(Py_None);
}

PyMethodDef buffer_methods[] = {
    {"__enter__", buffer_enter, METH_NOARGS, nullptr},
    {"__exit__", buffer_exit, METH_VARARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot buffer_slots[] = {
    {Py_tp_doc, const_cast<char*>("Memory of its own: from gpumap.empty(), a Pool or a Kernel. Given back when neither "
                                  "the buffer nor a view or tensor of it is left, and the GPU is done with it.")},
    {Py_tp_dealloc, reinterpret_cast<void*>(array_dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(array_traverse)},
    {Py_tp_methods, buffer_methods},
    {0, nullptr},
};
PyType_Spec buffer_spec = {"gpumap.Buffer", sizeof(Array), 0,
                           Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, buffer_slots};

// ---- Pools ----

struct PoolObject {
  PyObject_HEAD gpumap_pool pool;
  gpumap_device_info info;
  Geometry geometry;
};

PyObject* pool_new(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  static const char* names[] = {"shape", "dtype", "max_blocks", "device", "placement", nullptr};
  PyObject* shape = nullptr;
  PyObject* dtype = nullptr;
  PyObject* selector = Py_None;
  const char* placement = "bar";
  uint32_t max_blocks = 0;
  if (PyArg_ParseTupleAndKeywords(arguments, keywords, "O|O$O&Os", const_cast<char**>(names), &shape, &dtype,
                                  read_uint32, &max_blocks, &selector, &placement) == 0) {
    return nullptr;
  }
  gpumap_pool_options options = GPUMAP_INIT(gpumap_pool_options);
  Geometry geometry;
  const DataType* element = dtype == nullptr ? dtype_named("uint8") : read_dtype(dtype);
  if (element == nullptr || !read_shape(shape, element, geometry) || !read_placement(placement, options.placement)) {
    return nullptr;
  }
  options.block_bytes = static_cast<uint64_t>(geometry.bytes() > 0 ? geometry.bytes() : 1);
  options.max_blocks = max_blocks;
  const Ref device = device_of(selector);
  gpumap_pool pool = nullptr;
  if (!device || !succeeded(gpumap_pool_create(as_device(device)->device, &options, &pool))) {
    return nullptr;
  }
  auto* made = new_object<PoolObject>(type);
  if (made == nullptr) {
    gpumap_pool_close(pool);
    return nullptr;
  }
  made->pool = pool;
  made->info = as_device(device)->info;
  made->geometry = geometry;
  return reinterpret_cast<PyObject*>(made);
}

void pool_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  {
    const WithoutGil others;  // kernels may still run on its memory
    gpumap_pool_close(reinterpret_cast<PoolObject*>(self)->pool);
  }
  PyObject_Free(self);
  Py_DECREF(type);
}

PyObject* pool_take(PyObject* self, PyObject* /*none*/) {
  auto* pool = reinterpret_cast<PoolObject*>(self);
  gpumap_memory memory = nullptr;
  const gpumap_status status = gpumap_pool_take(pool->pool, &memory);
  if (status == GPUMAP_FULL) {
    return raise_status(status,
                        "all blocks of the pool are out, or still used by the GPU: give one back, or raise "
                        "max_blocks");
  }
  return succeeded(status) ? make_buffer(memory, pool->info, pool->geometry, nullptr) : nullptr;
}

PyMethodDef pool_methods[] = {
    {"take", pool_take, METH_NOARGS,
     "take($self, /)\n--\n\nA Buffer that nobody else uses; its content is what was there. Raises Full, OutOfMemory."},
    {nullptr, nullptr, 0, nullptr},
};

PyType_Slot pool_slots[] = {
    {Py_tp_doc,
     const_cast<char*>("Pool(shape, dtype=\"uint8\", *, max_blocks=0, device=None, placement=\"bar\")\n--\n\n"
                       "Buffers of one shape, many in one allocation: for small ones that come and go. "
                       "max_blocks=0: no limit.")},
    {Py_tp_new, reinterpret_cast<void*>(pool_new)},
    {Py_tp_dealloc, reinterpret_cast<void*>(pool_dealloc)},
    {Py_tp_methods, pool_methods},
    {0, nullptr},
};
PyType_Spec pool_spec = {"gpumap.Pool", sizeof(PoolObject), 0, Py_TPFLAGS_DEFAULT, pool_slots};

PyObject* devices(PyObject* /*module*/, PyObject* /*none*/) {
  Ref list(PyList_New(0));
  for (uint32_t index = 0; list; ++index) {
    gpumap_device_info info = GPUMAP_INIT(gpumap_device_info);
    gpumap_status status = GPUMAP_OK;
    {
      const WithoutGil others;
      status = gpumap_device_describe(index, &info);
    }
    if (status == GPUMAP_ERROR_NO_DEVICE) {
      return list.release();
    }
    const Ref dict(succeeded(status) ? info_dict(info) : nullptr);
    if (!dict || PyList_Append(list.get(), dict.get()) != 0) {
      return nullptr;
    }
  }
  return nullptr;
}

PyMethodDef functions[] = {
    {"devices", devices, METH_NOARGS,
     "devices()\n--\n\nThe devices of this machine, without opening them: a list of dicts as of Device.info. Raises "
     "NoDriver where there is no Vulkan driver."},
    {"empty", method(empty), METH_VARARGS | METH_KEYWORDS,
     "empty(shape, dtype=\"uint8\", *, device=None, placement=\"bar\", require_coherent=False)\n--\n\n"
     "A Buffer in GPU memory; its content is random. placement: \"bar\": the CPU writes it, the GPU reads it; "
     "\"device\": the GPU alone; \"host\": page-locked memory, for results. Raises OutOfMemory with what was asked for "
     "and what there is."},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace

DeviceObject* as_device(const Ref& device) {
  return reinterpret_cast<DeviceObject*>(device.get());
}

Ref make_device(gpumap_device device) {
  gpumap_device_info info = GPUMAP_INIT(gpumap_device_info);
  if (!succeeded(gpumap_device_get_info(device, &info))) {
    gpumap_device_close(device);
    return {};
  }
  auto* made = new_object<DeviceObject>(device_type);
  if (made == nullptr) {
    gpumap_device_close(device);
    return {};
  }
  made->device = device;
  made->info = info;
  return Ref(reinterpret_cast<PyObject*>(made));
}

Ref device_of(PyObject* device) {
  if (PyObject_TypeCheck(device, device_type) != 0) {
    return Ref(new_ref(device));
  }
  if (device == Py_None) {
    return open_device("auto", 0);
  }
  const char* selector = PyUnicode_Check(device) != 0 ? read_text(device) : nullptr;
  if (selector == nullptr) {
    if (PyErr_Occurred() == nullptr) {
      PyErr_SetString(PyExc_TypeError, "device: a gpumap.Device or a selector, as \"auto\" or \"cuda:0\"");
    }
    return {};
  }
  return open_device(selector, 0);
}

PyObject* make_buffer(gpumap_memory memory, const gpumap_device_info& device, const Geometry& geometry,
                      const gpumap_layout* layout) {
  const HoldRef hold(new MemoryHold(memory, device.cuda_context));
  gpumap_memory_info info = GPUMAP_INIT(gpumap_memory_info);
  auto* array = succeeded(gpumap_memory_get_info(memory, &info)) ? new_object<Array>(buffer_type) : nullptr;
  if (array == nullptr) {
    return nullptr;
  }
  begin_array(array);
  array->hold = hold;
  array->place = place_of(info, device);
  array->geometry = geometry;
  if (layout != nullptr) {
    array->layout = *layout;
    array->has_layout = true;
  }
  return reinterpret_cast<PyObject*>(array);
}

bool kernel_input(Array* array, gpumap_run_options& options) {
  if (!usable(array)) {
    return false;
  }
  options.offset = array->offset;
  options.bytes = static_cast<uint64_t>(array->geometry.span());
  if (options.bytes == 0) {
    raise_invalid("the array has no elements for a kernel");
    return false;
  }
  if (auto* memory = dynamic_cast<MemoryHold*>(array->hold.get())) {
    options.memory = memory->memory();
    return true;
  }
  auto* slot = dynamic_cast<SlotHold*>(array->hold.get());
  if (slot != nullptr && array->place.read_only) {
    options.slot = slot->slot();
    return true;
  }
  raise_invalid("a kernel takes a Buffer, or a slot that was read: copy the frame into gpumap.empty()");
  return false;
}

bool add_device_types(PyObject* module) {
  device_type = add_type(module, "Device", device_spec);
  buffer_type = add_type(module, "Buffer", buffer_spec, array_type);
  pool_type = add_type(module, "Pool", pool_spec);
  return device_type != nullptr && buffer_type != nullptr && pool_type != nullptr &&
         PyModule_AddFunctions(module, functions) == 0;
}

}  // namespace gpumap::python
