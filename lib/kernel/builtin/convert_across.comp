// SPDX-License-Identifier: MIT
// The second of two passes of `convert` to a much smaller picture: see convert_across.cu.
#version 460
#include <gpumap.glsl>
#include <gpumap_color.glsl>
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
  const uvec2 step = gl_NumWorkGroups.xy * gl_WorkGroupSize.xy;
  for (uint y = gl_GlobalInvocationID.y; y < to.height; y += step.y) {
    const uint64_t row = from.plane[0] + uint64_t(y) * uint64_t(from.stride[0]) + uint64_t(16u * before);
    for (uint x = gl_GlobalInvocationID.x; x < to.width; x += step.x) {
      const gpumap_taps taps = gpumap_taps_of(x, width, to.width);
      vec4 sum = vec4(0.0), lost = vec4(0.0);
      for (int begin = taps.first; begin < taps.end; begin += GPUMAP_PLAIN_SUM) {
        vec4 some = vec4(0.0);
        for (int at = begin; at < min(begin + GPUMAP_PLAIN_SUM, taps.end); ++at) {
          some += gpumap_weight(taps, at) * load_f32x4(row + 16ul * uint64_t(at));
        }
        gpumap_add(sum, lost, some);
      }
      const vec4 made = gpumap_in_rgb(color, gpumap_of_shares(GPUMAP_FIXED_IN, sum, float(gpumap_weights(taps))));
      const vec4 pixel[4] = {made, made, made, made};
      gpumap_store_pixels(to, GPUMAP_FIXED_OUT, x, y, 1u, pixel, mean, scale);
    }
  }
}
