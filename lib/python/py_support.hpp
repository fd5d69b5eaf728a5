// SPDX-License-Identifier: MIT
//
// What the files of the module share: references, errors, arguments. The module is compiled against Python's limited
// interface of 3.11, so that one binary serves 3.11 and later.
#pragma once
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <gpumap/gpumap.h>

#include <algorithm>
#include <cstdint>
#include <utility>

namespace gpumap::python {

/// Whether the interpreter ends: objects of Python are left alone.
bool interpreter_ends();

/// A reference to an object of Python, given back with the GIL held.
class Ref {
 public:
  Ref() = default;
  /// Takes over a new reference; null after a call that failed.
  explicit Ref(PyObject* owned) : object_(owned) {}
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  Ref(const Ref&) = delete;
  Ref& operator=(const Ref&) = delete;
  ~Ref() {
    if (!interpreter_ends()) {
      Py_DecRef(object_);
    }
  }

  [[nodiscard]] PyObject* get() const { return object_; }
  [[nodiscard]] PyObject* release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_ = nullptr;
};

/// A new reference to `object`. The interpreter counts it: Python 3.12 and later count none of None's, but Py_INCREF of
/// 3.11's headers would, in a wheel that was built with them.
inline PyObject* new_ref(PyObject* object) {
  Py_IncRef(object);
  return object;
}

/// Lets other threads of Python run for the life of this object. Where the interpreter ends meanwhile, Python ends the
/// thread in the destructor, by unwinding its stack.
class WithoutGil {
 public:
  WithoutGil() : state_(PyEval_SaveThread()) {}
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;
  ~WithoutGil() noexcept(false) { PyEval_RestoreThread(state_); }

 private:
  PyThreadState* state_;
};

/// Sets the exception of gpumap.errors for a status that is not GPUMAP_OK, with gpumap_last_error() or `text`. Null.
PyObject* raise_status(gpumap_status status, const char* text = nullptr);
/// The cause that the next raise_status() of this thread gives, instead of gpumap_last_error().
void explain(const char* text);
/// Sets gpumap.errors.InvalidArgument, which is a ValueError. Null.
PyObject* raise_invalid(const char* format, ...) __attribute__((format(printf, 1, 2)));
/// True where `status` is GPUMAP_OK, else the exception is set.
inline bool succeeded(gpumap_status status) {
  return status == GPUMAP_OK || raise_status(status) != nullptr;
}

/// Whether fork() made this process after the module was loaded in its parent: nothing of the parent's may be touched.
bool is_forked_child();
/// Has the two functions around this one know. False with an exception set.
bool watch_process();
/// True, and the exception is set, in such a child.
bool raise_if_forked();
/// A timeout in seconds, None for none, as nanoseconds. False with an exception set.
bool read_timeout(PyObject* seconds, int64_t& nanoseconds);
/// A CUDA stream: None, the address, or an object with __cuda_stream__, cuda_stream or ptr. False with an exception
/// set.
bool read_stream(PyObject* stream, bool& given, void*& handle);
/// An object with a buffer: the object, or a view by NumPy of what has none, as PyTorch's tensors of the CPU. Null with
/// an exception set.
Ref with_buffer(PyObject* object);
/// The UTF-8 text of a str or of a path, kept alive by `keep`; null with an exception set.
const char* read_path(PyObject* path, Ref& keep);

/// Calls `step(nanoseconds)` until it returns something other than GPUMAP_TIMEOUT, or `timeout_ns` is over: in parts,
/// between which signals of Python are handled (Ctrl-C). False with an exception set.
template <typename Step>
bool wait_in_parts(int64_t timeout_ns, gpumap_status& status, const Step& step);

int64_t monotonic_ns();

template <typename Step>
bool wait_in_parts(int64_t timeout_ns, gpumap_status& status, const Step& step) {
  constexpr int64_t part_ns = 100'000'000;
  const int64_t end_ns = timeout_ns < 0 ? INT64_MAX : monotonic_ns() + timeout_ns;
  while (true) {
    {
      const WithoutGil others;
      status = step(std::clamp<int64_t>(end_ns - monotonic_ns(), 0, part_ns));
    }
    if (status != GPUMAP_TIMEOUT || monotonic_ns() >= end_ns) {
      return true;
    }
    if (PyErr_CheckSignals() != 0) {
      return false;
    }
  }
}

}  // namespace gpumap::python
