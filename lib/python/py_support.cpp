// SPDX-License-Identifier: MIT
#include "py_support.hpp"

#include <dlfcn.h>
#include <pthread.h>
#include <time.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "py_objects.hpp"

namespace gpumap::python {
namespace {

std::atomic<bool> forked{false};
std::atomic<bool> ending{false};

PyObject* at_interpreter_exit(PyObject* /*self*/, PyObject* /*none*/) {
  ending = true;
  return new_ref(Py_None);
}

/// What explain() said; allocated once for each thread that needs it.
thread_local char explained[512];

PyMethodDef exit_method = {"_at_exit", at_interpreter_exit, METH_NOARGS, nullptr};

}  // namespace

bool watch_process() {
  static const int watched = pthread_atfork(nullptr, nullptr, [] { forked = true; });
  if (watched != 0) {
    PyErr_SetString(PyExc_OSError, "pthread_atfork() failed: out of memory");
    return false;
  }
  // Called before the interpreter takes anything apart.
  const Ref atexit(PyImport_ImportModule("atexit"));
  const Ref function(atexit ? PyCFunction_NewEx(&exit_method, nullptr, nullptr) : nullptr);
  const Ref done(function ? PyObject_CallMethod(atexit.get(), "register", "O", function.get()) : nullptr);
  return static_cast<bool>(done);
}

void let_go_anywhere(HoldRef& hold) {
  // Not of the stable interface, though each Python has it.
  using HasGil = int (*)();
  static const auto has_gil = reinterpret_cast<HasGil>(dlsym(RTLD_DEFAULT, "PyGILState_Check"));
  if (has_gil != nullptr && !interpreter_ends() && PyGILState_GetThisThreadState() != nullptr && has_gil() == 1) {
    let_go(hold);
  }
  hold = HoldRef();
}

bool is_forked_child() {
  return forked.load(std::memory_order_relaxed);
}
bool interpreter_ends() {
  return ending.load(std::memory_order_relaxed);
}

bool raise_if_forked() {
  if (!is_forked_child()) {
    return false;
  }
  raise_status(GPUMAP_ERROR_FORKED,
               "gpumap was loaded by the parent of this process, and a child of fork() cannot use its GPU: start "
               "processes with multiprocessing.get_context(\"spawn\")");
  return true;
}

void explain(const char* text) {
  std::snprintf(explained, sizeof explained, "%s", text);
}

PyObject* raise_status(gpumap_status status, const char* text) {
  const Ref errors(PyImport_ImportModule("gpumap.errors"));
  const Ref by_status(errors ? PyObject_GetAttrString(errors.get(), "_BY_STATUS") : nullptr);
  const Ref number(by_status ? PyLong_FromLong(status) : nullptr);
  if (!number) {
    return nullptr;
  }
  PyObject* type = PyDict_GetItemWithError(by_status.get(), number.get());
  if (type == nullptr) {
    type = PyExc_RuntimeError;
  }
  if (text == nullptr) {
    text = *explained != '\0' ? explained : gpumap_last_error();
  }
  PyErr_SetString(type, *text != '\0' ? text : gpumap_status_name(status));
  *explained = '\0';
  return nullptr;
}

PyObject* raise_invalid(const char* format, ...) {
  char text[512];
  va_list values;
  va_start(values, format);
  vsnprintf(text, sizeof text, format, values);
  va_end(values);
  return raise_status(GPUMAP_ERROR_INVALID, text);
}

int64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * INT64_C(1'000'000'000) + now.tv_nsec;
}

bool read_timeout(PyObject* seconds, int64_t& nanoseconds) {
  if (seconds == nullptr || seconds == Py_None) {
    nanoseconds = GPUMAP_FOREVER;
    return true;
  }
  const double value = PyFloat_AsDouble(seconds);
  if (PyErr_Occurred() != nullptr) {
    return false;
  }
  if (std::isnan(value) || value < 0) {
    raise_invalid("a timeout is in seconds and at least 0, and this is %g: None waits without limit", value);
    return false;
  }
  // A century is as good as none.
  nanoseconds = value > 3e9 ? GPUMAP_FOREVER : static_cast<int64_t>(std::ceil(value * 1e9));
  return true;
}

namespace {

bool as_address(PyObject* number, void*& handle) {
  handle = PyLong_AsVoidPtr(number);
  return handle != nullptr || PyErr_Occurred() == nullptr;
}

/// The attribute, or null without an exception where there is none.
Ref optional_attribute(PyObject* object, const char* name) {
  Ref found(PyObject_GetAttrString(object, name));
  if (!found && PyErr_ExceptionMatches(PyExc_AttributeError) != 0) {
    PyErr_Clear();
  }
  return found;
}

}  // namespace

bool read_stream(PyObject* stream, bool& given, void*& handle) {
  handle = nullptr;
  given = stream != nullptr && stream != Py_None;
  if (!given) {
    return true;
  }
  if (PyLong_Check(stream) != 0) {
    return as_address(stream, handle);
  }
  Ref protocol = optional_attribute(stream, "__cuda_stream__");
  if (protocol) {
    // A method since version 0 of the protocol was settled; a tuple in objects that are older.
    if (PyCallable_Check(protocol.get()) != 0) {
      protocol = Ref(PyObject_CallNoArgs(protocol.get()));
    }
    const Ref number(protocol ? PySequence_GetItem(protocol.get(), 1) : nullptr);
    return number && as_address(number.get(), handle);
  }
  for (const char* name : {"cuda_stream", "ptr", "handle"}) {
    if (PyErr_Occurred() != nullptr) {
      return false;
    }
    const Ref number = optional_attribute(stream, name);
    if (number && PyLong_Check(number.get()) != 0) {
      return as_address(number.get(), handle);
    }
  }
  if (PyErr_Occurred() == nullptr) {
    PyErr_SetString(PyExc_TypeError,
                    "stream: None, a CUDA stream's address, or an object with __cuda_stream__, cuda_stream or ptr");
  }
  return false;
}

Ref with_buffer(PyObject* object) {
  if (PyObject_CheckBuffer(object) != 0) {
    return Ref(new_ref(object));
  }
  if (!optional_attribute(object, "__array__") && !optional_attribute(object, "__dlpack__")) {
    if (PyErr_Occurred() == nullptr) {
      PyErr_SetString(PyExc_TypeError, "bytes, an array or a tensor of the CPU");
    }
    return {};
  }
  const Ref numpy(PyImport_ImportModule("numpy"));
  return Ref(numpy ? PyObject_CallMethod(numpy.get(), "asarray", "O", object) : nullptr);
}

const char* read_text(PyObject* text) {
  Py_ssize_t bytes = 0;
  const char* utf8 = PyUnicode_AsUTF8AndSize(text, &bytes);
  if (utf8 != nullptr && std::strlen(utf8) != static_cast<size_t>(bytes)) {
    PyErr_SetString(PyExc_ValueError, "embedded null character");
    return nullptr;
  }
  return utf8;
}

namespace {

bool read_up_to(unsigned long long most, PyObject* number, unsigned long long& value) {
  const Ref index(PyNumber_Index(number));
  value = index ? PyLong_AsUnsignedLongLong(index.get()) : 0;
  if (PyErr_Occurred() != nullptr && PyErr_ExceptionMatches(PyExc_OverflowError) == 0) {
    return false;
  }
  if (PyErr_Occurred() != nullptr || value > most) {
    PyErr_Clear();
    raise_invalid("a number is less than 0 or more than %llu, which is the most there", most);
    return false;
  }
  return true;
}

}  // namespace

int read_uint32(PyObject* number, void* value) {
  unsigned long long read = 0;
  const bool done = read_up_to(UINT32_MAX, number, read);
  *static_cast<uint32_t*>(value) = static_cast<uint32_t>(read);
  return done ? 1 : 0;
}

int read_uint64(PyObject* number, void* value) {
  unsigned long long read = 0;
  const bool done = read_up_to(UINT64_MAX, number, read);
  *static_cast<uint64_t*>(value) = read;
  return done ? 1 : 0;
}

const char* read_path(PyObject* path, Ref& keep) {
  if (PyUnicode_Check(path) != 0) {
    keep = Ref(new_ref(path));
  } else {
    keep = Ref(PyOS_FSPath(path));
    if (keep && PyBytes_Check(keep.get()) != 0) {
      keep = Ref(PyUnicode_DecodeFSDefault(PyBytes_AsString(keep.get())));
    }
  }
  return keep ? read_text(keep.get()) : nullptr;
}

void Hold::used_by(void* stream) {
  if (std::find(streams_.begin(), streams_.end(), stream) == streams_.end()) {
    streams_.push_back(stream);
  }
}

gpumap_status MemoryHold::wait_on_stream(void* stream) {
  const gpumap_fence fence = gpumap_cuda_fence(stream);
  return gpumap_memory_wait(memory_, &fence, GPUMAP_FOREVER);
}

gpumap_status MemoryHold::flush() {
  gpumap_memory_info info = GPUMAP_INIT(gpumap_memory_info);
  const gpumap_status status = gpumap_memory_get_info(memory_, &info);
  return status != GPUMAP_OK || info.host == nullptr ? status : gpumap_memory_flush(memory_, 0, info.bytes);
}

void MemoryHold::give_back() {
  if (is_forked_child()) {
    return;
  }
  for (void* stream : streams()) {
    const gpumap_fence fence = gpumap_cuda_fence(stream);
    gpumap_memory_used_by(memory_, &fence);
  }
  gpumap_memory_free(memory_);
}

gpumap_status SlotHold::wait_on_stream(void* stream) {
  const gpumap_fence fence = gpumap_cuda_fence(stream);
  return gpumap_slot_wait(slot_, &fence, GPUMAP_FOREVER);
}

gpumap_status SlotHold::join_streams(gpumap_fence& fence, bool& fenced) {
  fenced = !streams().empty();
  if (!fenced) {
    return GPUMAP_OK;
  }
  void* first = streams().front();
  for (size_t other = 1; other < streams().size(); ++other) {
    const char* error = nullptr;
    if (!cuda_stream_after(context_, first, streams()[other], error)) {
      std::fprintf(stderr, "gpumap: a stream that uses a slot cannot be waited for: %s\n", error);
      return GPUMAP_ERROR_NOT_SUPPORTED;
    }
  }
  fence = gpumap_cuda_fence(first);
  return GPUMAP_OK;
}

gpumap_status SlotHold::release() {
  gpumap_fence fence = GPUMAP_INIT(gpumap_fence);
  bool fenced = false;
  const gpumap_status joined = join_streams(fence, fenced);
  return joined != GPUMAP_OK ? joined : gpumap_slot_release(slot_, fenced ? &fence : nullptr);
}

void SlotHold::give_back() {
  if (slot_ == nullptr || is_forked_child()) {
    return;
  }
  gpumap_status status = release();
  if (status == GPUMAP_ERROR_NOT_SUPPORTED) {
    status = gpumap_slot_release(slot_, nullptr);  // of a stream of another context, which cannot write the slot
  }
  if (status != GPUMAP_OK && status != GPUMAP_ERROR_INVALID) {
    std::fprintf(stderr, "gpumap: a slot stays in use: %s: %s\n", gpumap_status_name(status), gpumap_last_error());
  }
}

}  // namespace gpumap::python

// The module gpumap._core. Loading it opens no driver.

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
