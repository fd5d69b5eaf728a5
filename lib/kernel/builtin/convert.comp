// SPDX-License-Identifier: MIT
// Video, or a part of it, to video of another format or size, or to a tensor; to a much smaller size that is for
// convert_down and convert_across. A thread makes 4 neighbouring pixels of a
// row. Right for any grid, size and stride. Formats may be known when this is compiled: what is not needed is then not
// in the code.
// gpumap: params mean=[0,0,0],scale=[1,1,1],crop=[0,0,0,0]
// gpumap: work quad
// gpumap: output converted
// gpumap: launch per-field
#version 460
#include <gpumap.glsl>
#include <gpumap_color.glsl>
#include <gpumap_pixels.glsl>
#include <gpumap_taps.glsl>
#include <gpumap_tensors.glsl>

#ifdef GPUMAP_FIXED
#define IN_FORMAT GPUMAP_FIXED_IN
#define OUT_FORMAT GPUMAP_FIXED_OUT
#define RESAMPLES bool(GPUMAP_FIXED_RESAMPLES)
#else
#define IN_FORMAT from.format
#define OUT_FORMAT to.format
#define RESAMPLES (size != uvec2(to.width, to.height) || size != uvec2(from.width, from.height))
#endif

// The components of an output pixel from all the input pixels that its taps reach; `origin` is where the crop begins.
vec4 resampled(gpumap_view from, uvec2 origin, gpumap_taps across, gpumap_taps down) {
  vec4 sum = vec4(0.0);
  for (int y = down.first; y < down.end; ++y) {
    vec4 in_row = vec4(0.0);
    for (uint x = (origin.x + uint(across.first)) & ~3u; x < origin.x + uint(across.end); x += 4u) {
      vec4 pixel[4];
      gpumap_load_pixels(from, IN_FORMAT, x, origin.y + uint(y), min(4u, from.width - x), pixel);
      for (uint i = 0u; i < 4u; ++i) {
        const float weight = gpumap_weight(across, int(x + i) - int(origin.x));
        in_row += weight * gpumap_share(IN_FORMAT, pixel[i]);
      }
    }
    const float weight = gpumap_weight(down, y);
    sum += weight * in_row;
  }
  return gpumap_of_shares(IN_FORMAT, sum, float(gpumap_weights(across)) * float(gpumap_weights(down)));
}

void main() {
  const gpumap_view from = frame.in_view;
  const gpumap_view to = frame.out_view;
  if (IN_FORMAT < GPUMAP_FORMAT_NV12 || IN_FORMAT > GPUMAP_FORMAT_BAYER16_RGGB || from.width == 0u ||
      from.height == 0u) {
    return;
  }
  // The launching code has checked the crop; what lies outside the picture is not read all the same.
  const uvec2 origin =
      min(uvec2(frame.params[6], frame.params[7]), uvec2(from.width, from.height) - uvec2(1u));
  const uvec2 most = uvec2(from.width, from.height) - origin;
  uvec2 size = uvec2(frame.params[8], frame.params[9]);
  if (size.x == 0u || size.x > most.x) size.x = most.x;
  if (size.y == 0u || size.y > most.y) size.y = most.y;

  const gpumap_color color = frame.color;
  const vec3 mean = vec3(frame.params[0], frame.params[1], frame.params[2]);
  const vec3 scale = vec3(frame.params[3], frame.params[4], frame.params[5]);
  const uint quads = to.width / 4u + uint(to.width % 4u != 0u);
  const uvec2 step = gl_NumWorkGroups.xy * gl_WorkGroupSize.xy;
  for (uint y = gl_GlobalInvocationID.y; y < to.height; y += step.y) {
    for (uint q = gl_GlobalInvocationID.x; q < quads; q += step.x) {
      const uint x = 4u * q, count = min(4u, to.width - x);
      vec4 pixel[4];
      if (RESAMPLES) {
        const gpumap_taps down = gpumap_taps_of(y, size.y, to.height);
        for (uint i = 0u; i < 4u; ++i) {
          // Beyond the row's end: its last pixel again, which is not stored.
          const gpumap_taps across = gpumap_taps_of(min(x + i, to.width - 1u), size.x, to.width);
          pixel[i] = resampled(from, origin, across, down);
        }
      } else {
        gpumap_load_pixels(from, IN_FORMAT, x, y, count, pixel);
      }
      for (uint i = 0u; i < 4u; ++i) pixel[i] = gpumap_in_rgb(color, pixel[i]);
      gpumap_store_pixels(to, OUT_FORMAT, x, y, count, pixel, mean, scale);
    }
  }
}
