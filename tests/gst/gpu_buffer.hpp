// SPDX-License-Identifier: MIT
// Frames for a gpumapkernel with no gpumapsink before it.
#pragma once

#include <cstring>
#include <memory>
#include <utility>

#include "gpumap/device.hpp"
#include "gst/memory/memory.hpp"
#include "pipeline.hpp"

namespace gpumap::gst::test {

/// `data` in the memory of this machine's GPU.
inline Buffer on_gpu(const Data& data) {
  const auto device = Device::open();
  MemoryBlock block{device->allocate({.placement = Placement::host, .bytes = data.size()}), {}};
  std::memcpy(block.mapping->host(), data.data(), data.size());
  block.mapping->flush(0, data.size());
  auto bytes = std::make_unique<FrameMemory>(device, std::move(block), data.size(), [](MemoryBlock&&) {});
  Buffer buffer(gst_buffer_new());
  gst_buffer_append_memory(buffer.get(),
                           memory_new(wrapping_allocator(), std::move(bytes), data.size(), GST_MEMORY_FLAG_READONLY));
  return buffer;
}

}  // namespace gpumap::gst::test
