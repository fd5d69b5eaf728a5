// SPDX-License-Identifier: MIT
// A user's kernel in CUDA C++: the negative of an RGBA image (alpha kept), or of plain bytes. One thread a pixel or byte.
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
  } else if (x < frame.in.bytes && y == 0) {
    const gpumap_u8* from = reinterpret_cast<const gpumap_u8*>(frame.in.plane[0]);
    reinterpret_cast<gpumap_u8*>(frame.out.plane[0])[x] = 255 - from[x];
  }
}
