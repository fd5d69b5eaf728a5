// SPDX-License-Identifier: MIT
//
// A lens that hunts for focus, for GRAY8: each pixel becomes the mean of a disc around it, whose radius swings between 0
// and `radius` pixels, `period` seconds from one sharp moment to the next. defocus.comp is the twin for compute shaders.
// gpumap: params radius=6,period=2
#include <gpumap/kernel.h>

constexpr float pi = 3.14159265f;

// The radius goes by the frame's time: it is the same whatever the frame rate, and after a seek.
__device__ float radius_now(const gpumap_frame& frame) {
  if (frame.pts < 0) return 0;
  const float seconds = static_cast<float>(frame.pts) / 1e9f;
  return frame.params[0] * fabsf(cosf(pi * seconds / frame.params[1]));
}

__device__ float pixel(const gpumap_view& in, int x, int y) {
  // Beyond the edge it is as at the edge.
  x = min(max(x, 0), static_cast<int>(in.width) - 1);
  y = min(max(y, 0), static_cast<int>(in.height) - 1);
  return reinterpret_cast<const gpumap_u8*>(in.plane[0])[1ull * y * in.stride[0] + x];
}

extern "C" __global__ void defocus(gpumap_frame frame) {
  const int x = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  const int y = static_cast<int>(blockIdx.y * blockDim.y + threadIdx.y);
  if (x >= static_cast<int>(frame.in.width) || y >= static_cast<int>(frame.in.height)) return;
  const float radius = radius_now(frame);
  const int reach = static_cast<int>(radius + 0.5f);
  float sum = 0;
  float weights = 0;
  for (int dy = -reach; dy <= reach; ++dy) {
    for (int dx = -reach; dx <= reach; ++dx) {
      // A pixel on the rim counts in part, so that the disc grows smoothly.
      const float distance = sqrtf(static_cast<float>(dx * dx + dy * dy));
      const float weight = fminf(fmaxf(radius + 0.5f - distance, 0.0f), 1.0f);
      sum += weight * pixel(frame.in, x + dx, y + dy);
      weights += weight;
    }
  }
  gpumap_u8* row = reinterpret_cast<gpumap_u8*>(frame.out.plane[0] + 1ull * y * frame.out.stride[0]);
  row[x] = static_cast<gpumap_u8>(sum / weights + 0.5f);
}
