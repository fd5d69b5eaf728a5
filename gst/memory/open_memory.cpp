// SPDX-License-Identifier: MIT
#include "gst/memory/open_memory.hpp"

#include <algorithm>
#include <chrono>
#include <limits>

#include "gpumap/cuda.hpp"
#include "gpumap/error.hpp"
#include "gpumap/vulkan.hpp"
#include "gst/memory/gpumap_memory.hpp"

namespace gpumap::gst {

namespace {

guint64 get_cuda_address(GstMemory* memory) {
  const FrameMemory& frame = *frame_memory(memory);
  if (frame.is_host()) return 0;
  const guint64 address = frame.mapping().address(Backend::cuda);
  return address == 0 ? 0 : address + frame.offset() + memory->offset;
}

CudaHandles handles(GstMemory* memory) {
  const FrameMemory& frame = *frame_memory(memory);
  return frame.device() ? cuda_handles(*frame.device()) : CudaHandles();
}

gpointer get_cuda_context(GstMemory* memory) {
  return handles(memory).context;
}

gint get_cuda_device(GstMemory* memory) {
  const FrameMemory& frame = *frame_memory(memory);
  return handles(memory).context != nullptr ? frame.device()->info().cuda_index : -1;
}

gchar* get_device_uuid(GstMemory* memory) {
  const FrameMemory& frame = *frame_memory(memory);
  return frame.device() ? g_strdup(to_string(frame.device()->info().uuid).c_str()) : nullptr;
}

/// Call `use` with the frame, which is on a device.
template <typename Use>
gboolean try_with(GstMemory* memory, GError** error, Use use) {
  try {
    FrameMemory& frame = *frame_memory(memory);
    if (!frame.device()) {
      throw Error(ErrorCode::not_supported, "this frame is in host memory, on no GPU: map it");
    }
    frame.check_recall();
    return static_cast<gboolean>(use(frame));
  } catch (const std::exception& failure) {
    g_set_error_literal(error, GST_RESOURCE_ERROR, GST_RESOURCE_ERROR_FAILED, failure.what());
    return FALSE;
  }
}

gboolean wait_on_cuda_stream(GstMemory* memory, gpointer stream, GError** error) {
  return try_with(memory, error, [&](FrameMemory& frame) {
    frame.let_cuda_stream_wait(stream);
    return true;
  });
}

gboolean add_cuda_reader(GstMemory* memory, gpointer stream, GError** error) {
  return try_with(memory, error, [&](FrameMemory& frame) {
    frame.add_read_fence(fence_of_cuda_stream(*frame.device(), stream));
    return true;
  });
}

gboolean wait(GstMemory* memory, GstClockTime timeout, GError** error) {
  return try_with(memory, error, [&](FrameMemory& frame) {
    constexpr auto longest = static_cast<GstClockTime>(std::numeric_limits<std::int64_t>::max() / 2);
    const std::chrono::nanoseconds patience(static_cast<std::int64_t>(std::min(timeout, longest)));
    return frame.written().wait_for(patience) == WaitResult::ready;
  });
}

gboolean export_vulkan(GstMemory* memory, GstGpumapVulkanExport* exported, GError** error) {
  return try_with(memory, error, [&](FrameMemory& frame) {
    const VulkanExport made = export_to_vulkan(frame.mapping());
    *exported = {made.fd,           made.allocation_bytes,
                 made.buffer_bytes, made.base + frame.offset() + memory->offset,
                 made.memory_type,  {}};
    return true;
  });
}

}  // namespace

void open_memory(GstGpumapAllocatorClass* klass) {
  klass->get_cuda_address = get_cuda_address;
  klass->get_cuda_context = get_cuda_context;
  klass->get_cuda_device = get_cuda_device;
  klass->get_device_uuid = get_device_uuid;
  klass->wait_on_cuda_stream = wait_on_cuda_stream;
  klass->add_cuda_reader = add_cuda_reader;
  klass->wait = wait;
  klass->export_vulkan = export_vulkan;
}

}  // namespace gpumap::gst
