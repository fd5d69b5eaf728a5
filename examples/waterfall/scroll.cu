// SPDX-License-Identifier: MIT
//
// A picture that scrolls: the last row of each frame of `colour` becomes the top line, and those before it move down. A
// line keeps its place in frame.state, a ring of `height` lines, in which frame.sequence counts: none is moved.
// scroll.comp is the twin for compute shaders.
// gpumap: params width:u32=512 in [1,4096],height:u32=300 in [1,2048]
// gpumap: state 33554432
// gpumap: input application/x-rgba-rows
// gpumap: output video/x-raw,format=RGBA,width={params.width},height={params.height}
#include <gpumap/kernel.h>

extern "C" __global__ void scroll(gpumap_frame frame) {
  const gpumap_u32 x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
  const gpumap_u32 width = frame.out.width, height = frame.out.height;
  if (x >= width || y >= height) return;
  gpumap_u32* const lines = reinterpret_cast<gpumap_u32*>(frame.state);
  const gpumap_u32 newest = static_cast<gpumap_u32>(frame.sequence % height);
  gpumap_u32 pixel;
  if (y == 0) {
    const gpumap_u64 rows = frame.in.bytes / (4ull * width);
    if (rows == 0) return;
    pixel = reinterpret_cast<const gpumap_u32*>(frame.in.plane[0])[(rows - 1) * width + x];
    lines[newest * width + x] = pixel;
  } else {
    pixel = lines[(newest + height - y) % height * width + x];
  }
  *reinterpret_cast<gpumap_u32*>(frame.out.plane[0] + 1ull * y * frame.out.stride[0] + 4ull * x) = pixel | 0xFF000000u;
}
