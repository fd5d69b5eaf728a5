// SPDX-License-Identifier: MIT
//
// A picture that scrolls: the last row of each frame of `colour` becomes the top line, and those before it move down. A
// line keeps its place in frame.state, a ring of `height` lines, in which frame.sequence counts: none is moved.
// scroll.cu is the twin in CUDA C++.
// gpumap: params width:u32=512 in [1,4096],height:u32=300 in [1,2048]
// gpumap: state 33554432
// gpumap: input application/x-rgba-rows
// gpumap: output video/x-raw,format=RGBA,width={params.width},height={params.height}
#version 460
#include <gpumap.glsl>

void main() {
  const uint x = gl_GlobalInvocationID.x, y = gl_GlobalInvocationID.y;
  const uint width = frame.out_view.width, height = frame.out_view.height;
  if (x >= width || y >= height) return;
  const uint newest = uint(frame.sequence % uint64_t(height));
  uint pixel;
  if (y == 0u) {
    const uint64_t rows = frame.in_view.bytes / (4ul * uint64_t(width));
    if (rows == 0ul) return;
    pixel = load_u32(frame.in_view.plane[0] + 4ul * ((rows - 1ul) * uint64_t(width) + uint64_t(x)));
    store_u32(frame.state + 4ul * uint64_t(newest * width + x), pixel);
  } else {
    pixel = load_u32(frame.state + 4ul * uint64_t((newest + height - y) % height * width + x));
  }
  store_u32(frame.out_view.plane[0] + uint64_t(y) * uint64_t(frame.out_view.stride[0]) + 4ul * uint64_t(x),
            pixel | 0xFF000000u);
}
