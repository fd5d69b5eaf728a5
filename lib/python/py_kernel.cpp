// SPDX-License-Identifier: MIT
//
// gpumap.Kernel: a kernel of a file, or a built-in, on one array at a time.
#include <cstring>
#include <new>
#include <string>
#include <vector>

#include "py_objects.hpp"

namespace gpumap::python {

namespace {

PyTypeObject* kernel_type = nullptr;

struct KernelObject {
  PyObject_HEAD gpumap_kernel kernel;
  gpumap_device_info device;
};

KernelObject* as_kernel(PyObject* self) {
  return reinterpret_cast<KernelObject*>(self);
}

/// A parameter's value as the line `params` has it: a number, or a list of them.
bool append_value(std::string& text, PyObject* value) {
  const bool several = PyUnicode_Check(value) == 0 && PySequence_Check(value) != 0;
  if (!several) {
    // True is the number 1.
    const Ref number(PyBool_Check(value) != 0 ? PyNumber_Long(value) : new_ref(value));
    const Ref shown(number ? PyObject_Str(number.get()) : nullptr);
    const char* utf8 = shown ? read_text(shown.get()) : nullptr;
    text += utf8 != nullptr ? utf8 : "";
    return utf8 != nullptr;
  }
  const Py_ssize_t count = PySequence_Size(value);
  if (count < 0 && PyErr_ExceptionMatches(PyExc_TypeError) != 0) {
    // An array or a tensor without dimensions is a number.
    PyErr_Clear();
    Ref number(PyNumber_Index(value));
    if (!number) {
      PyErr_Clear();
      number = Ref(PyNumber_Float(value));
    }
    return number && append_value(text, number.get());
  }
  if (Py_EnterRecursiveCall(" in a kernel's parameter") != 0) {
    return false;  // the list is in itself
  }
  bool done = count >= 0;
  text += '[';
  for (Py_ssize_t at = 0; done && at < count; ++at) {
    const Ref item(PySequence_GetItem(value, at));
    text += at == 0 ? "" : ",";
    done = item && append_value(text, item.get());
  }
  text += ']';
  Py_LeaveRecursiveCall();
  return done;
}

/// "gain=2.0,taps=[1,2,3]" of keywords.
bool read_params(PyObject* params, std::string& text) {
  PyObject* name = nullptr;
  PyObject* value = nullptr;
  Py_ssize_t at = 0;
  while (params != nullptr && params != Py_None && PyDict_Next(params, &at, &name, &value) != 0) {
    const char* utf8 = read_text(name);
    if (utf8 == nullptr) {
      return false;
    }
    text += (text.empty() ? "" : ",") + std::string(utf8) + "=";
    if (!append_value(text, value)) {
      return false;
    }
  }
  return true;
}

constexpr const char* backends[] = {"default", "cuda", "vulkan"};

PyObject* kernel_new(PyTypeObject* type, PyObject* arguments, PyObject* keywords) {
  static const char* names[] = {"file",         "builtin", "params", "function",     "declare", "defines",
                                "include_path", "backend", "device", "check_bounds", "reload",  nullptr};
  PyObject* file = Py_None;
  PyObject* params = Py_None;
  PyObject* selector = Py_None;
  const char* backend = "default";
  int check_bounds = 0;
  int reload = 0;
  gpumap_kernel_options options = GPUMAP_INIT(gpumap_kernel_options);
  if (PyArg_ParseTupleAndKeywords(arguments, keywords, "|O$zOzzzzsOpp", const_cast<char**>(names), &file,
                                  &options.builtin, &params, &options.function, &options.declare, &options.defines,
                                  &options.include_path, &backend, &selector, &check_bounds, &reload) == 0) {
    return nullptr;
  }
  Ref keep;
  std::string params_text;
  options.file = file == Py_None ? nullptr : read_path(file, keep);
  if ((options.file == nullptr && file != Py_None) || !read_params(params, params_text)) {
    return nullptr;
  }
  options.params = params_text.empty() ? nullptr : params_text.c_str();
  const std::string wanted = backend;
  while (options.backend < 3 && wanted != backends[options.backend]) {
    ++options.backend;
  }
  if (options.backend == 3) {
    return raise_invalid("unknown backend %.50s: \"default\", \"cuda\" or \"vulkan\"", backend);
  }
  options.flags = (check_bounds != 0 ? uint32_t{GPUMAP_KERNEL_CHECK_BOUNDS} : 0U) |
                  (reload != 0 ? uint32_t{GPUMAP_KERNEL_RELOAD} : 0U);
  const Ref device = device_of(selector);
  if (!device) {
    return nullptr;
  }
  gpumap_kernel kernel = nullptr;
  gpumap_status status = GPUMAP_OK;
  {
    const WithoutGil others;  // the compiler takes its time
    status = gpumap_kernel_open(as_device(device)->device, &options, &kernel);
  }
  auto* made = succeeded(status) ? new_object<KernelObject>(type) : nullptr;
  if (made == nullptr) {
    if (status == GPUMAP_OK) {
      gpumap_kernel_close(kernel);
    }
    return nullptr;
  }
  made->kernel = kernel;
  made->device = as_device(device)->info;
  return reinterpret_cast<PyObject*>(made);
}

void kernel_dealloc(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  if (gpumap_kernel kernel = as_kernel(self)->kernel; kernel != nullptr) {
    const WithoutGil others;
    gpumap_kernel_close(kernel);
  }
  // Of the class in Python: that has its own.
  reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

bool open(PyObject* self) {
  if (as_kernel(self)->kernel != nullptr) {
    return true;
  }
  raise_invalid("the kernel is closed");
  return false;
}

bool read_layout(const char* caps, gpumap_layout& layout) {
  return caps == nullptr || succeeded(gpumap_layout_of_caps(caps, &layout));
}

/// What the kernel wrote: as `layout` says, else as the input where it is as large, else bytes.
PyObject* output_array(PyObject* self, gpumap_memory output, Array* input, const gpumap_layout* layout) {
  const uint64_t bytes = gpumap_memory_bytes(output);
  Geometry geometry;
  if (layout != nullptr && !lies_in(*layout, bytes)) {
    layout = nullptr;  // the kernel gave less than that: bytes
  }
  if (layout != nullptr) {
    geometry = geometry_of(*layout, bytes);
  } else if (bytes == static_cast<uint64_t>(input->geometry.bytes()) && input->geometry.contiguous()) {
    geometry = input->geometry;
  } else {
    const auto size = static_cast<int64_t>(bytes);
    set_shape(geometry, dtype_named("uint8"), &size, 1);
  }
  return make_buffer(output, as_kernel(self)->device, geometry, layout);
}

PyObject* kernel_call(PyObject* self, PyObject* arguments, PyObject* keywords) {
  static const char* names[] = {"array", "caps", "out", "stream", "to_host", "gap", "timeout", nullptr};
  PyObject* object = nullptr;
  const char* caps = nullptr;
  const char* out_caps = nullptr;
  PyObject* stream_object = Py_None;
  int to_host = 0;
  int gap = 0;
  PyObject* seconds = Py_None;
  if (PyArg_ParseTupleAndKeywords(arguments, keywords, "O!|$zzOppO", const_cast<char**>(names), array_type, &object,
                                  &caps, &out_caps, &stream_object, &to_host, &gap, &seconds) == 0 ||
      !open(self)) {
    return nullptr;
  }
  auto* array = reinterpret_cast<Array*>(object);
  gpumap_run_options options = GPUMAP_INIT(gpumap_run_options);
  gpumap_layout in = GPUMAP_INIT(gpumap_layout);
  gpumap_layout out = GPUMAP_INIT(gpumap_layout);
  void* stream = nullptr;
  bool has_stream = false;
  // The input last: a stream's attributes, and whatever is made a number, run code that may close the array.
  if (!read_layout(caps, in) || !read_layout(out_caps, out) || !read_stream(stream_object, has_stream, stream) ||
      !read_timeout(seconds, options.timeout_ns) || !kernel_input(array, options)) {
    return nullptr;
  }
  if (options.timeout_ns == GPUMAP_FOREVER) {
    options.timeout_ns = 0;  // a minute
  } else if (options.timeout_ns == 0) {
    options.timeout_ns = 1;  // not at all
  }
  if (caps != nullptr) {
    options.layout = &in;
  } else if (array->has_layout) {
    options.layout = &array->layout;
    // That says where the first plane begins.
    const uint64_t begin = array->layout.planes > 0 ? array->layout.offset[0] : 0;
    options.offset -= begin;
    options.bytes += begin;
  } else if (!array->geometry.contiguous()) {
    return raise_invalid(
        "the rows have gaps between them, which a kernel would read: give caps=, or copy it into gpumap.empty()");
  } else if (Py_TYPE(object) == array_type) {
    options.layout = &in;  // a plane or a view: bytes, whatever its slot's caps are
  }
  const bool is_described = caps != nullptr || array->has_layout;
  options.out = out_caps != nullptr ? &out : nullptr;
  const gpumap_fence fence = gpumap_cuda_fence(stream);
  options.after = has_stream ? &fence : nullptr;
  // Without a GPU all memory is the host's: there NumPy sees the output, too.
  options.to_host = to_host != 0 || as_kernel(self)->device.software != 0 ? 1 : 0;
  options.gap = gap != 0 ? 1 : 0;
  gpumap_memory output = nullptr;
  gpumap_layout declared = GPUMAP_INIT(gpumap_layout);
  gpumap_status status = GPUMAP_OK;
  {
    const CallHold hold(array->hold);
    if (!array->place.read_only && !succeeded(hold->flush())) {
      return nullptr;
    }
    const WithoutGil others;
    status = gpumap_kernel_run(as_kernel(self)->kernel, &options, &output);
    // Its turn may be another thread's call.
    if (output != nullptr && options.out == nullptr && is_described &&
        gpumap_kernel_output(as_kernel(self)->kernel, options.layout, &declared) == GPUMAP_OK &&
        declared.format != GPUMAP_FORMAT_BYTES && std::memcmp(&declared, options.layout, sizeof declared) != 0) {
      options.out = &declared;
    }
  }
  if (status == GPUMAP_TIMEOUT) {
    return raise_status(status, "the GPU was not done within the timeout");
  }
  if (!succeeded(status)) {
    return nullptr;
  }
  if (output == nullptr) {
    return new_ref(Py_None);
  }
  return output_array(self, output, array, options.out);
}

PyObject* kernel_set_params(PyObject* self, PyObject* arguments, PyObject* keywords) {
  std::string text;
  if (PyTuple_Size(arguments) > 0) {
    PyErr_SetString(PyExc_TypeError, "set() takes keywords: set(gain=2.0)");
    return nullptr;
  }
  if (!open(self) || !read_params(keywords, text)) {
    return nullptr;
  }
  gpumap_status status = GPUMAP_OK;
  {
    const WithoutGil others;  // another thread may run it
    status = gpumap_kernel_set_params(as_kernel(self)->kernel, text.c_str());
  }
  if (!succeeded(status)) {
    return nullptr;
  }
  return new_ref(Py_None);
}

/// False with an exception set.
bool read_info(PyObject* self, gpumap_kernel_info& info) {
  if (!open(self)) {
    return false;
  }
  gpumap_status status = GPUMAP_OK;
  {
    const WithoutGil others;  // another thread may run it
    status = gpumap_kernel_get_info(as_kernel(self)->kernel, &info);
  }
  return succeeded(status);
}

PyObject* kernel_result(PyObject* self, PyObject* arguments, PyObject* keywords) {
  static const char* names[] = {"timeout", nullptr};
  PyObject* seconds = Py_None;
  int64_t timeout_ns = 0;
  gpumap_status status = GPUMAP_OK;
  gpumap_kernel_info info = GPUMAP_INIT(gpumap_kernel_info);
  if (PyArg_ParseTupleAndKeywords(arguments, keywords, "|O", const_cast<char**>(names), &seconds) == 0 ||
      !read_timeout(seconds, timeout_ns) || !read_info(self, info)) {
    return nullptr;
  }
  std::vector<uint64_t> words(info.result_words);
  gpumap_kernel kernel = as_kernel(self)->kernel;
  if (!wait_in_parts(timeout_ns, status, [&](int64_t part_ns) {
        return gpumap_kernel_result(kernel, words.data(), info.result_words, part_ns);
      })) {
    return nullptr;
  }
  if (status == GPUMAP_TIMEOUT) {
    return raise_status(status, "the kernel has not ended within the timeout");
  }
  Ref list(succeeded(status) ? PyList_New(0) : nullptr);
  for (const uint64_t word : words) {
    const Ref number(list ? PyLong_FromUnsignedLongLong(word) : nullptr);
    if (!number || PyList_Append(list.get(), number.get()) != 0) {
      return nullptr;
    }
  }
  return list.release();
}

PyObject* kernel_info(PyObject* self, void* /*none*/) {
  gpumap_kernel_info info = GPUMAP_INIT(gpumap_kernel_info);
  if (!read_info(self, info)) {
    return nullptr;
  }
  return Py_BuildValue("{sssssIsK}", "name", info.name, "backend", backends[info.backend < 3 ? info.backend : 0],
                       "result_words", info.result_words, "frames", static_cast<unsigned long long>(info.frames));
}

PyObject* kernel_close(PyObject* self, PyObject* /*none*/) {
  if (gpumap_kernel kernel = std::exchange(as_kernel(self)->kernel, nullptr); kernel != nullptr) {
    gpumap_status status = GPUMAP_OK;
    {
      const WithoutGil others;
      status = gpumap_kernel_close(kernel);
    }
    if (!succeeded(status)) {
      return nullptr;
    }
  }
  return new_ref(Py_None);
}

PyMethodDef kernel_methods[] = {
    {"set", method(kernel_set_params), METH_VARARGS | METH_KEYWORDS,
     "set($self, **params)\n--\n\nParameters of the frames from here on. Those that are not named take their "
     "defaults. InvalidArgument leaves them as they were."},
    {"result", method(kernel_result), METH_VARARGS | METH_KEYWORDS,
     "result($self, timeout=None)\n--\n\nThe result words of the oldest launch whose result was not asked for: a "
     "list of numbers of 64 bits. Of launches that have ended the last 1024 are kept. timeout: seconds. Raises "
     "Timeout; InvalidArgument where the kernel tells none."},
    {"close", kernel_close, METH_NOARGS, "close($self, /)\n--\n\nWaits for its launches. May be called twice."},
    {nullptr, nullptr, 0, nullptr},
};

PyGetSetDef kernel_properties[] = {
    {"info", kernel_info, nullptr, "A dict: name, backend, result_words, frames.", nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyType_Slot kernel_slots[] = {
    {Py_tp_doc, const_cast<char*>("A kernel, compiled: see gpumap.Kernel.")},
    {Py_tp_new, reinterpret_cast<void*>(kernel_new)},
    {Py_tp_call, reinterpret_cast<void*>(kernel_call)},
    {Py_tp_dealloc, reinterpret_cast<void*>(kernel_dealloc)},
    {Py_tp_methods, kernel_methods},
    {Py_tp_getset, kernel_properties},
    {0, nullptr},
};
PyType_Spec kernel_spec = {"gpumap._core.Kernel", sizeof(KernelObject), 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
                           kernel_slots};

}  // namespace

bool add_kernel_type(PyObject* module) {
  kernel_type = add_type(module, "Kernel", kernel_spec);
  return kernel_type != nullptr;
}

}  // namespace gpumap::python
