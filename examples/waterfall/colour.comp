// SPDX-License-Identifier: MIT
//
// Colours for rows of decibels, as kernel=spectrum db=1 gives them: black at `floor`, white at `ceiling`, the
// colours of fire between. A number becomes a pixel of four bytes, so the output is as large as the input. colour.cu
// is the twin in CUDA C++.
// gpumap: params floor=-70,ceiling=-20
// gpumap: output application/x-rgba-rows
#version 460
#include <gpumap.glsl>

const vec3 fire[5] = vec3[5](vec3(0.0, 0.0, 0.0), vec3(0.3, 0.0, 0.45), vec3(0.85, 0.2, 0.3), vec3(1.0, 0.7, 0.1),
                             vec3(1.0, 1.0, 1.0));

void main() {
  const uint64_t step = gpumap_thread_count();
  for (uint64_t i = gpumap_thread(); i < frame.out_view.bytes / 4ul; i += step) {
    const float level = load_f32(frame.in_view.plane[0] + 4ul * i);
    const float height = clamp((level - frame.params[0]) / (frame.params[1] - frame.params[0]), 0.0, 1.0) * 4.0;
    const uint below = min(uint(height), 3u);
    const uvec3 rgb = uvec3(mix(fire[below], fire[below + 1u], height - float(below)) * 255.0 + 0.5);
    store_u32(frame.out_view.plane[0] + 4ul * i, rgb.r | rgb.g << 8 | rgb.b << 16 | 0xFF000000u);
  }
}
