// SPDX-License-Identifier: MIT
// Frames for a gpumapkernel with no gpumapsink before it, and the pixels of what comes out.
#pragma once

#include <array>
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

/// The pixels of a picture without its padding, which may hold anything, and which gst_video_frame_copy() copies, too,
/// from GStreamer 1.24 on: plane by plane and row by row, each row as wide as the picture.
inline Data pixels_of(GstSample* sample) {
  GstVideoInfo info;
  EXPECT_TRUE(gst_video_info_from_caps(&info, gst_sample_get_caps(sample)));
  GstVideoFrame frame;
  EXPECT_TRUE(gst_video_frame_map(&frame, &info, gst_sample_get_buffer(sample), GST_MAP_READ));
  Data pixels;
  for (guint plane = 0; plane < GST_VIDEO_FRAME_N_PLANES(&frame); ++plane) {
    std::array<gint, GST_VIDEO_MAX_COMPONENTS> components{};
    gst_video_format_info_component(info.finfo, plane, components.data());
    const auto component = static_cast<guint>(components[0]);
    const auto bytes = GST_VIDEO_FRAME_COMP_WIDTH(&frame, component) * GST_VIDEO_FRAME_COMP_PSTRIDE(&frame, component);
    const auto* first = static_cast<const std::byte*>(GST_VIDEO_FRAME_PLANE_DATA(&frame, plane));
    for (std::ptrdiff_t row = 0; row < GST_VIDEO_FRAME_COMP_HEIGHT(&frame, component); ++row) {
      const std::byte* begin = first + row * GST_VIDEO_FRAME_PLANE_STRIDE(&frame, plane);
      pixels.insert(pixels.end(), begin, begin + bytes);
    }
  }
  gst_video_frame_unmap(&frame);
  return pixels;
}

}  // namespace gpumap::gst::test
