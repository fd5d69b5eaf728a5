// SPDX-License-Identifier: MIT
// Frames for a gpumapkernel with no gpumapsink before it.
#pragma once

#include <cstring>
#include <memory>
#include <utility>

#include "gpumap/block_pool.hpp"
#include "gpumap/device.hpp"
#include "gst/memory/gpumap_memory.hpp"
#include "pipeline.hpp"

namespace gpumap::gst::test {

/// `data` in the memory of this machine's GPU. It is freed once the last holder has let go and no kernel reads it any
/// more, as gpumap's own frames are: a kernel may end after the buffer.
inline Buffer on_gpu(const Data& data) {
  const auto device = Device::open();
  MemoryBlock block{device->allocate({.placement = Placement::bar, .bytes = data.size()}), {}};
  std::memcpy(block.mapping->host(), data.data(), data.size());
  block.mapping->flush(0, data.size());
  auto pool = std::make_shared<BlockPool>(device, device->default_backend(), Placement::bar, data.size());
  auto bytes = std::make_unique<FrameMemory>(device, std::move(block), data.size(), std::move(pool));
  Buffer buffer(gst_buffer_new());
  gst_buffer_append_memory(buffer.get(),
                           memory_new(wrapping_allocator(), std::move(bytes), data.size(), GST_MEMORY_FLAG_READONLY));
  return buffer;
}

}  // namespace gpumap::gst::test
