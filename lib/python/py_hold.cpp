// SPDX-License-Identifier: MIT
#include "py_hold.hpp"

#include <algorithm>
#include <cstdio>

#include "py_objects.hpp"
#include "py_support.hpp"

namespace gpumap::python {

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
  const gpumap_status status = release();
  if (status != GPUMAP_OK && status != GPUMAP_ERROR_INVALID) {
    std::fprintf(stderr, "gpumap: a slot stays in use: %s: %s\n", gpumap_status_name(status), gpumap_last_error());
  }
}

}  // namespace gpumap::python
