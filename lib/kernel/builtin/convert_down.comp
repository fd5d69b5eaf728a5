// SPDX-License-Identifier: MIT
// The first of two passes of `convert` to a much smaller picture: see convert_down.cu.
#version 460
#include <gpumap.glsl>
#include <gpumap_color.glsl>
#include <gpumap_pixels.glsl>
#include <gpumap_sums.glsl>
#include <gpumap_taps.glsl>

void main() {
  const gpumap_view from = frame.in_view;
  const gpumap_view to = frame.out_view;
  const uint left = uint(frame.params[6]), top = uint(frame.params[7]), height = uint(frame.params[9]);
  const int tap_begin = int(frame.params[10]), tap_end = int(frame.params[11]);
  const uint first_row = uint(frame.params[12]), rows = uint(frame.params[13]);
  const uvec2 step = gl_NumWorkGroups.xy * gl_WorkGroupSize.xy;
  for (uint y = gl_GlobalInvocationID.y; y < to.height; y += step.y) {
    for (uint q = gl_GlobalInvocationID.x; q < to.width; q += step.x) {
      const uint x = (left & ~3u) + 4u * q, count = min(4u, from.width - x);
      const gpumap_taps taps = gpumap_taps_of(first_row + y, height, rows);
      const int first = min(taps.first + tap_begin, taps.end);
      const int end = min(taps.first + tap_end, taps.end);
      const uint64_t at = to.plane[0] + uint64_t(y) * uint64_t(to.stride[0]) + 64ul * uint64_t(q);
      vec4 sum[4], lost[4];
      for (uint i = 0u; i < 4u; ++i) {
        sum[i] = vec4(0.0);
        if (first != taps.first) sum[i] = load_f32x4(at + uint64_t(16u * i));
        lost[i] = vec4(0.0);
      }
      for (int begin = first; begin < end; begin += GPUMAP_PLAIN_SUM) {
        vec4 some[4] = {vec4(0.0), vec4(0.0), vec4(0.0), vec4(0.0)};
        for (int row = begin; row < min(begin + GPUMAP_PLAIN_SUM, end); ++row) {
          vec4 pixel[4];
          gpumap_load_pixels(from, GPUMAP_FIXED_IN, x, top + uint(row), count, pixel);
          const float weight = gpumap_weight(taps, row);
          for (uint i = 0u; i < 4u; ++i) some[i] += weight * gpumap_share(GPUMAP_FIXED_IN, pixel[i]);
        }
        for (uint i = 0u; i < 4u; ++i) gpumap_add(sum[i], lost[i], some[i]);
      }
      if (first == taps.end) continue;
      const float weights = end == taps.end ? float(gpumap_weights(taps)) : 1.0;
      for (uint i = 0u; i < 4u; ++i) store_f32x4(at + uint64_t(16u * i), sum[i] / weights);
    }
  }
}
