// SPDX-License-Identifier: MIT
//
// What the files of the module share: references, errors, arguments. The module is compiled against Python's limited
// interface of 3.11, so that one binary serves 3.11 and later.
#pragma once

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <gpumap/gpumap.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <utility>
#include <vector>

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
/// The UTF-8 text of a str. Null with an exception set, also for one with a null character in it, which would end
/// there.
const char* read_text(PyObject* text);
/// For "O&" of PyArg_ParseTupleAndKeywords(), whose "I" and "K" take a number modulo 2^32 and 2^64.
int read_uint32(PyObject* number, void* value);
int read_uint64(PyObject* number, void* value);
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

// What keeps the bytes of an array where they are: memory, a slot, a buffer of GStreamer's. Arrays, host views and
// DLPack tensors count as users; the last one to go gives the bytes back, on whatever thread, without the GIL.

class Hold {
 public:
  Hold() = default;
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;

  void keep() { users_.fetch_add(1, std::memory_order_relaxed); }
  void drop() {
    if (users_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      give_back();
      delete this;
    }
  }
  /// Whether anyone but the caller uses the bytes.
  [[nodiscard]] bool shared() const { return users_.load(std::memory_order_acquire) > 1; }

  /// Whether the end of the last use may wait for the GPU. Where it does not, the GIL is kept: a thread that gets it
  /// meanwhile may keep it for 5 ms.
  [[nodiscard]] virtual bool may_wait() const { return true; }

  /// Work of `stream` may be in flight on the bytes until they are given back. With the GIL held.
  void used_by(void* stream);

  /// Makes a CUDA stream wait, or the calling thread, until the bytes are there. gpumap_last_error() has the cause.
  virtual gpumap_status wait_on_stream(void* /*stream*/) { return GPUMAP_OK; }
  virtual gpumap_status wait(int64_t /*timeout_ns*/) { return GPUMAP_OK; }
  /// Makes what the CPU wrote through a host view visible to the GPU.
  virtual gpumap_status flush() { return GPUMAP_OK; }
  /// `offset` counts from the first byte.
  virtual gpumap_status write(uint64_t offset, const void* from, uint64_t bytes) = 0;
  virtual gpumap_status read(uint64_t offset, void* to, uint64_t bytes) = 0;

 protected:
  virtual ~Hold() = default;
  /// The last user has gone. Does not throw.
  virtual void give_back() = 0;
  [[nodiscard]] const std::vector<void*>& streams() const { return streams_; }

 private:
  std::atomic<int> users_{1};
  std::vector<void*> streams_;
};

/// One use of a Hold.
class HoldRef {
 public:
  HoldRef() = default;
  /// Takes over the first use of a new one.
  explicit HoldRef(Hold* made) : hold_(made) {}
  HoldRef(const HoldRef& other) : hold_(other.hold_) {
    if (hold_ != nullptr) {
      hold_->keep();
    }
  }
  HoldRef(HoldRef&& other) noexcept : hold_(std::exchange(other.hold_, nullptr)) {}
  HoldRef& operator=(HoldRef other) noexcept {
    std::swap(hold_, other.hold_);
    return *this;
  }
  ~HoldRef() {
    if (hold_ != nullptr) {
      hold_->drop();
    }
  }
  Hold* operator->() const { return hold_; }
  [[nodiscard]] Hold* get() const { return hold_; }
  explicit operator bool() const { return hold_ != nullptr; }

 private:
  Hold* hold_ = nullptr;
};

/// Drops a use, with the GIL held. The last one may wait for the GPU: other threads of Python run meanwhile.
inline void let_go(HoldRef& hold) {
  HoldRef last = std::move(hold);
  if (!last || last->shared() || !last->may_wait()) {
    return;
  }
  const WithoutGil others;
  last = HoldRef();
}
/// The same where the GIL may be held, or not.
void let_go_anywhere(HoldRef& hold);

/// A use for the time of a call: another thread may drop all others meanwhile, and leave the last one to this. Its life
/// begins and ends with the GIL held.
class CallHold : public HoldRef {
 public:
  CallHold() = default;
  explicit CallHold(HoldRef hold) : HoldRef(std::move(hold)) {}
  CallHold(const CallHold&) = delete;
  CallHold& operator=(const CallHold&) = delete;
  CallHold& operator=(HoldRef hold) {
    let_go(*this);
    HoldRef::operator=(std::move(hold));
    return *this;
  }
  ~CallHold() noexcept(false) {
    if (!interpreter_ends()) {  // then Python may be unwinding the stack of a thread that has no GIL
      let_go(*this);
    }
  }
};

/// Memory of gpumap_memory_alloc(), of a pool, or that a kernel wrote.
class MemoryHold : public Hold {
 public:
  MemoryHold(gpumap_memory memory, void* cuda_context) : memory_(memory), context_(cuda_context) {}
  [[nodiscard]] gpumap_memory memory() const { return memory_; }
  gpumap_status wait_on_stream(void* stream) override;
  gpumap_status wait(int64_t timeout_ns) override { return gpumap_memory_wait(memory_, nullptr, timeout_ns); }
  gpumap_status flush() override;
  gpumap_status write(uint64_t offset, const void* from, uint64_t bytes) override {
    return gpumap_memory_write(memory_, offset, from, bytes);
  }
  gpumap_status read(uint64_t offset, void* to, uint64_t bytes) override {
    return gpumap_memory_read(memory_, offset, to, bytes);
  }

 protected:
  void give_back() override;

 private:
  gpumap_memory memory_;
  void* context_;
};

/// A ring: closed when neither its object nor a host view of a slot that was written needs it.
class RingHold : public Hold {
 public:
  explicit RingHold(gpumap_ring ring) : ring_(ring) {}
  [[nodiscard]] gpumap_ring ring() const { return ring_; }
  gpumap_status write(uint64_t, const void*, uint64_t) override { return GPUMAP_ERROR_INVALID; }
  gpumap_status read(uint64_t, void*, uint64_t) override { return GPUMAP_ERROR_INVALID; }

 protected:
  void give_back() override { gpumap_ring_close(ring_); }

 private:
  gpumap_ring ring_;
};

/// A slot. One that was taken is released when the last user has gone. One that is written is published or given up by
/// its `with`, and whatever is left afterwards uses the ring's memory.
class SlotHold : public Hold {
 public:
  SlotHold(gpumap_slot slot, HoldRef ring_if_written, void* cuda_context)
      : slot_(slot), ring_(std::move(ring_if_written)), context_(cuda_context) {}
  [[nodiscard]] gpumap_slot slot() const { return slot_; }
  [[nodiscard]] bool may_wait() const override { return slot_ != nullptr || (ring_ && !ring_->shared()); }
  /// The slot was published, or released with an error that the caller has raised.
  void forget_slot() { slot_ = nullptr; }
  /// `fence` is that of one stream which waits for all others; `fenced` is false where there is none.
  gpumap_status join_streams(gpumap_fence& fence, bool& fenced);
  /// Releases the slot behind the work of the streams that used it. An error leaves it out.
  gpumap_status release();
  gpumap_status wait_on_stream(void* stream) override;
  gpumap_status wait(int64_t timeout_ns) override { return gpumap_slot_wait(slot_, nullptr, timeout_ns); }
  gpumap_status write(uint64_t offset, const void* from, uint64_t bytes) override {
    return gpumap_slot_write(slot_, offset, from, bytes);
  }
  gpumap_status read(uint64_t offset, void* to, uint64_t bytes) override {
    return gpumap_slot_read(slot_, offset, to, bytes);
  }

 protected:
  void give_back() override;

 private:
  gpumap_slot slot_;
  HoldRef ring_;
  void* context_;
};

}  // namespace gpumap::python
