// SPDX-License-Identifier: MIT
// A user's kernel in CUDA C++: the negative of an RGBA image (alpha kept), or of every byte of anything
// else.
#include <gpumap/grid.h>
#include <gpumap/kernel.h>

extern "C" __global__ void invert(gpumap_frame frame) {
  const gpumap_u32 x = blockIdx.x * blockDim.x + threadIdx.x;
  const gpumap_u32 y = blockIdx.y * blockDim.y + threadIdx.y;

  if (frame.in.format == GPUMAP_FORMAT_RGBA) {
    if (x >= frame.in.width || y >= frame.in.height) return;
    const uchar4* from = reinterpret_cast<const uchar4*>(frame.in.plane[0] + 1ull * y * frame.in.stride[0]);
    uchar4* to = reinterpret_cast<uchar4*>(frame.out.plane[0] + 1ull * y * frame.out.stride[0]);
    const uchar4 pixel = from[x];
    to[x] = make_uchar4(255 - pixel.x, 255 - pixel.y, 255 - pixel.z, pixel.w);
  } else {
    // The grid of other video has a thread for each pixel, and a frame may have more bytes: hence a loop.
    const gpumap_u64 bytes = frame.in.bytes < frame.out.bytes ? frame.in.bytes : frame.out.bytes;
    const gpumap_u8* from = reinterpret_cast<const gpumap_u8*>(frame.in.plane[0]);
    gpumap_u8* to = reinterpret_cast<gpumap_u8*>(frame.out.plane[0]);
    for (gpumap_u64 i = gpumap_thread(); i < bytes; i += gpumap_thread_count()) to[i] = 255 - from[i];
  }
}
