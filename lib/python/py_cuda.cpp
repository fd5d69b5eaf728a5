// SPDX-License-Identifier: MIT
#include "py_objects.hpp"

#include <dlfcn.h>

#include <chrono>
#include <cstddef>
#include <thread>

namespace gpumap::python {

namespace {

struct Driver {
  int (*push)(void* context) = nullptr;
  int (*pop)(void** context) = nullptr;
  int (*event_create)(void** event, unsigned flags) = nullptr;
  int (*event_record)(void* event, void* stream) = nullptr;
  int (*event_destroy)(void* event) = nullptr;
  int (*stream_wait_event)(void* stream, void* event, unsigned flags) = nullptr;
  int (*stream_query)(void* stream) = nullptr;
  int (*copy)(uint64_t to, uint64_t from, size_t bytes, void* stream) = nullptr;
  int (*pointer_attribute)(void* value, int attribute, uint64_t address) = nullptr;
  int (*error_string)(int error, const char** text) = nullptr;
  bool complete = false;
};

template <typename Function>
bool find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(dlsym(library, name));
  return function != nullptr;
}

Driver open_driver() {
  Driver driver;
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  driver.complete =
      library != nullptr && find(library, "cuCtxPushCurrent_v2", driver.push) &&
      find(library, "cuCtxPopCurrent_v2", driver.pop) && find(library, "cuEventCreate", driver.event_create) &&
      find(library, "cuEventRecord", driver.event_record) && find(library, "cuEventDestroy_v2", driver.event_destroy) &&
      find(library, "cuStreamWaitEvent", driver.stream_wait_event) &&
      find(library, "cuStreamQuery", driver.stream_query) && find(library, "cuMemcpyDtoDAsync_v2", driver.copy) &&
      find(library, "cuPointerGetAttribute", driver.pointer_attribute) &&
      find(library, "cuGetErrorString", driver.error_string);
  return driver;
}

const Driver* driver_or(const char*& error) {
  static const Driver driver = open_driver();
  if (!driver.complete) {
    error = "libcuda.so.1 is missing or too old: it comes with NVIDIA's driver";
    return nullptr;
  }
  return &driver;
}

bool check(const Driver& driver, int result, const char*& error) {
  if (result == 0) {
    return true;
  }
  if (driver.error_string(result, &error) != 0 || error == nullptr) {
    error = "CUDA gives an error that has no text";
  }
  return false;
}

/// Makes a context current for its life.
class Current {
 public:
  Current(const Driver& driver, void* context) : driver_(driver), pushed_(driver.push(context) == 0) {}
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;
  ~Current() {
    void* context = nullptr;
    if (pushed_) {
      driver_.pop(&context);
    }
  }

 private:
  const Driver& driver_;
  bool pushed_;
};

}  // namespace

bool cuda_stream_after(void* context, void* stream, void* other, const char*& error) {
  const Driver* driver = driver_or(error);
  if (driver == nullptr) {
    return false;
  }
  const Current current(*driver, context);
  constexpr unsigned without_timing = 2;
  void* event = nullptr;
  if (!check(*driver, driver->event_create(&event, without_timing), error)) {
    return false;
  }
  const bool done = check(*driver, driver->event_record(event, other), error) &&
                    check(*driver, driver->stream_wait_event(stream, event, 0), error);
  driver->event_destroy(event);  // freed when it has come to pass
  return done;
}

bool cuda_copy(void* context, uint64_t to, uint64_t from, uint64_t bytes, void* stream, const char*& error) {
  const Driver* driver = driver_or(error);
  if (driver == nullptr) {
    return false;
  }
  const Current current(*driver, context);
  return check(*driver, driver->copy(to, from, bytes, stream), error);
}

bool cuda_stream_done(void* context, void* stream, const char*& error) {
  const Driver* driver = driver_or(error);
  if (driver == nullptr) {
    return false;
  }
  const Current current(*driver, context);
  constexpr int not_ready = 600;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  int result = driver->stream_query(stream);
  while (result == not_ready && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::microseconds(20));
    result = driver->stream_query(stream);
  }
  return check(*driver, result, error);
}

bool cuda_pointer_device(uint64_t address, int32_t& ordinal, void*& context, const char*& error) {
  const Driver* driver = driver_or(error);
  if (driver == nullptr) {
    return false;
  }
  constexpr int context_attribute = 1;
  constexpr int ordinal_attribute = 9;
  return check(*driver, driver->pointer_attribute(&ordinal, ordinal_attribute, address), error) &&
         check(*driver, driver->pointer_attribute(&context, context_attribute, address), error);
}

}  // namespace gpumap::python
