// SPDX-License-Identifier: MIT
// The second of two passes of `convert` to a much smaller picture: see convert_across.cu.
#version 460
#include <gpumap.glsl>
#include <gpumap_color.glsl>
#include <gpumap_components.glsl>
#include <gpumap_sums.glsl>
#include <gpumap_taps.glsl>
#include <gpumap_tensors.glsl>

void main() {
  const gpumap_view from = frame.in_view;
  const gpumap_view to = frame.out_view;
  const uint before = uint(frame.params[6]) & 3u, width = uint(frame.params[8]);
  const gpumap_color color = frame.color;
  const vec3 mean = vec3(frame.params[0], frame.params[1], frame.params[2]);
  const vec3 scale = vec3(frame.params[3], frame.params[4], frame.params[5]);
  const vec4 base = vec4(frame.params[14], frame.params[15], frame.params[16], 0.0);
  const uint wide = gpumap_unit_width(GPUMAP_FIXED_OUT), high = gpumap_unit_height(GPUMAP_FIXED_OUT);
  const uvec2 step = gl_NumWorkGroups.xy * gl_WorkGroupSize.xy;
  for (uint y = high * gl_GlobalInvocationID.y; y < to.height; y += high * step.y) {
    const uint64_t upper = gpumap_row(from, 0u, y) + uint64_t(16u * before);
    const uint64_t lower = gpumap_row(from, 0u, min(y + 1u, to.height - 1u)) + uint64_t(16u * before);
    for (uint x = wide * gl_GlobalInvocationID.x; x < to.width; x += wide * step.x) {
      // One loop for all: lavapipe ends a thread's loops after so many turns.
      const gpumap_taps left = gpumap_taps_of(x, width, to.width);
      const gpumap_taps right = gpumap_taps_of(min(x + wide, to.width) - 1u, width, to.width);
      vec4 sum[4] = {vec4(0.0), vec4(0.0), vec4(0.0), vec4(0.0)};
      vec4 lost[4] = sum;
      for (int begin = left.first; begin < right.end; begin += GPUMAP_PLAIN_SUM) {
        vec4 some[4] = {vec4(0.0), vec4(0.0), vec4(0.0), vec4(0.0)};
        for (int at = begin; at < min(begin + GPUMAP_PLAIN_SUM, right.end); ++at) {
          const float of_left = gpumap_weight(left, at), of_right = gpumap_weight(right, at);
          const vec4 above = load_f32x4(upper + 16ul * uint64_t(at));
          some[0] += of_left * above;
          if (wide > 1u) some[1] += of_right * above;
          if (high > 1u) {
            const vec4 below = load_f32x4(lower + 16ul * uint64_t(at));
            some[2] += of_left * below;
            some[3] += of_right * below;
          }
        }
        gpumap_add(sum[0], lost[0], some[0]);
        if (wide > 1u) gpumap_add(sum[1], lost[1], some[1]);
        if (high > 1u) gpumap_add(sum[2], lost[2], some[2]);
        if (high > 1u) gpumap_add(sum[3], lost[3], some[3]);
      }
      vec4 made[4];
      for (uint i = 0u; i < 4u; ++i) {
        const float weights = float(i % 2u == 0u ? gpumap_weights(left) : gpumap_weights(right));
        made[i] = gpumap_recolored(color, base, gpumap_of_shares(GPUMAP_FIXED_IN, sum[i], weights));
      }
      if (gpumap_has_luma(GPUMAP_FIXED_OUT)) {
        const vec4 first[4] = {made[0], made[1], made[1], made[1]};
        const vec4 second[4] = {made[2], made[3], made[3], made[3]};
        gpumap_store_components(to, GPUMAP_FIXED_OUT, x, y, min(wide, to.width - x), min(high, to.height - y), first,
                                second);
      } else {
        const vec4 cut_off = gpumap_cut_off(made[0]);
        const vec4 pixel[4] = {cut_off, cut_off, cut_off, cut_off};
        gpumap_store_pixels(to, GPUMAP_FIXED_OUT, x, y, 1u, pixel, mean, scale);
      }
    }
  }
}
