// SPDX-License-Identifier: MIT
// A user's kernel as a compute shader: the negative of an RGBA image (alpha kept), or of every byte of anything
// else.
#version 460
#include <gpumap.glsl>

void main() {
  const uint64_t from = frame.in_view.plane[0];
  const uint64_t to = frame.out_view.plane[0];

  if (frame.in_view.format == GPUMAP_FORMAT_RGBA) {
    const uint x = gl_GlobalInvocationID.x;
    const uint y = gl_GlobalInvocationID.y;
    if (x >= frame.in_view.width || y >= frame.in_view.height) return;
    const uint pixel = load_u32(from + uint64_t(y) * uint64_t(frame.in_view.stride[0]) + uint64_t(4u * x));
    store_u32(to + uint64_t(y) * uint64_t(frame.out_view.stride[0]) + uint64_t(4u * x), pixel ^ 0x00FFFFFFu);
  } else {
    // The grid of other video has a thread for each pixel, and a frame may have more bytes: hence a loop.
    const uint64_t bytes = min(frame.in_view.bytes, frame.out_view.bytes);
    for (uint64_t i = gpumap_thread(); i < bytes; i += gpumap_thread_count()) {
      store_u8(to + i, 255u - load_u8(from + i));
    }
  }
}
