// SPDX-License-Identifier: MIT
//
// A lens that hunts for focus, for GRAY8: each pixel becomes the mean of a disc around it, whose radius swings between 0
// and `radius` pixels, `period` seconds from one sharp moment to the next. defocus.cu is the twin in CUDA C++.
// gpumap: params radius=6,period=2
#version 460
#include <gpumap.glsl>

const float pi = 3.14159265;

// The radius goes by the frame's time: it is the same whatever the frame rate, and after a seek.
float radius_now() {
  if (frame.pts < 0l) return 0.0;
  const float seconds = float(frame.pts) / 1e9;
  return frame.params[0] * abs(cos(pi * seconds / frame.params[1]));
}

float pixel(int x, int y) {
  // Beyond the edge it is as at the edge.
  x = clamp(x, 0, int(frame.in_view.width) - 1);
  y = clamp(y, 0, int(frame.in_view.height) - 1);
  return float(load_u8(frame.in_view.plane[0] + uint64_t(y) * uint64_t(frame.in_view.stride[0]) + uint64_t(x)));
}

void main() {
  const int x = int(gl_GlobalInvocationID.x);
  const int y = int(gl_GlobalInvocationID.y);
  if (x >= int(frame.in_view.width) || y >= int(frame.in_view.height)) return;
  const float radius = radius_now();
  const int reach = int(radius + 0.5);
  float sum = 0.0;
  float weights = 0.0;
  for (int dy = -reach; dy <= reach; ++dy) {
    for (int dx = -reach; dx <= reach; ++dx) {
      // A pixel on the rim counts in part, so that the disc grows smoothly.
      const float weight = clamp(radius + 0.5 - length(vec2(dx, dy)), 0.0, 1.0);
      sum += weight * pixel(x + dx, y + dy);
      weights += weight;
    }
  }
  const uint64_t to = frame.out_view.plane[0] + uint64_t(y) * uint64_t(frame.out_view.stride[0]) + uint64_t(x);
  store_u8(to, uint(sum / weights + 0.5));
}
