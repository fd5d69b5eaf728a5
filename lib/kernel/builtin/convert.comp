// SPDX-License-Identifier: MIT
// Video, or a part of it, to video of another format or size, or to a tensor; to a much smaller size that is for
// convert_down and convert_across. A thread makes 4 neighbouring pixels of a
// row, or of two rows that share their chroma. Right for any grid, size and stride. Formats may be known when this is
// compiled: what is not needed is then not in the code. color goes from the input's colours to the output's, where
// params 14 to 16 are added.
// gpumap: params mean=[0,0,0],scale=[1,1,1],crop=[0,0,0,0]
// gpumap: work quad
// gpumap: output converted
// gpumap: launch per-field
#version 460
#include <gpumap.glsl>
#include <gpumap_color.glsl>
#include <gpumap_components.glsl>
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
// `shares` is the format by whose alpha these count.
vec4 resampled(gpumap_view from, uint shares, uvec2 origin, gpumap_taps across, gpumap_taps down) {
  vec4 sum = vec4(0.0);
  for (int y = down.first; y < down.end; ++y) {
    vec4 in_row = vec4(0.0);
    for (uint x = (origin.x + uint(across.first)) & ~3u; x < origin.x + uint(across.end); x += 4u) {
      vec4 pixel[4];
      gpumap_load_pixels(from, IN_FORMAT, x, origin.y + uint(y), min(4u, from.width - x), pixel);
      for (uint i = 0u; i < 4u; ++i) {
        const float weight = gpumap_weight(across, int(x + i) - int(origin.x));
        in_row += weight * gpumap_share(shares, pixel[i]);
      }
    }
    const float weight = gpumap_weight(down, y);
    sum += weight * in_row;
  }
  return gpumap_of_shares(shares, sum, float(gpumap_weights(across)) * float(gpumap_weights(down)));
}

void main() {
  const gpumap_view from = frame.in_view;
  const gpumap_view to = frame.out_view;
  if (IN_FORMAT < GPUMAP_FORMAT_NV12 || IN_FORMAT > GPUMAP_FORMAT_P016 || from.width == 0u || from.height == 0u) {
    return;
  }
  // The launching code has checked the crop; what lies outside the picture is not read all the same.
  const uvec2 origin = min(uvec2(frame.params[6], frame.params[7]), uvec2(from.width, from.height) - uvec2(1u));
  const uvec2 most = uvec2(from.width, from.height) - origin;
  uvec2 size = uvec2(frame.params[8], frame.params[9]);
  if (size.x == 0u || size.x > most.x) size.x = most.x;
  if (size.y == 0u || size.y > most.y) size.y = most.y;
  // A pixel that is one of the input's keeps its colour, also where it covers nothing.
  const uint shares = size == uvec2(to.width, to.height) ? GPUMAP_FORMAT_RGB : IN_FORMAT;

  const gpumap_color color = frame.color;
  const vec3 mean = vec3(frame.params[0], frame.params[1], frame.params[2]);
  const vec3 scale = vec3(frame.params[3], frame.params[4], frame.params[5]);
  const vec4 base = vec4(frame.params[14], frame.params[15], frame.params[16], 0.0);
  const uint quads = to.width / 4u + uint(to.width % 4u != 0u);
  const uint unit = gpumap_unit_height(OUT_FORMAT);
  const uvec2 step = gl_NumWorkGroups.xy * gl_WorkGroupSize.xy;
  for (uint y = unit * gl_GlobalInvocationID.y; y < to.height; y += unit * step.y) {
    for (uint q = gl_GlobalInvocationID.x; q < quads; q += step.x) {
      const uint x = 4u * q, count = min(4u, to.width - x), rows = min(unit, to.height - y);
      vec4 pixel[2][4];
      for (uint row = 0u; row < unit; ++row) {
        // Beyond the picture: its last row, and the row's last pixel, again, which are not stored.
        const uint at = min(y + row, to.height - 1u);
        if (RESAMPLES) {
          const gpumap_taps down = gpumap_taps_of(at, size.y, to.height);
          for (uint i = 0u; i < 4u; ++i) {
            const gpumap_taps across = gpumap_taps_of(min(x + i, to.width - 1u), size.x, to.width);
            pixel[row][i] = resampled(from, shares, origin, across, down);
          }
        } else {
          gpumap_load_pixels(from, IN_FORMAT, x, at, count, pixel[row]);
        }
        for (uint i = 0u; i < 4u; ++i) pixel[row][i] = gpumap_recolored(color, base, pixel[row][i]);
      }
      if (gpumap_has_luma(OUT_FORMAT)) {
        gpumap_store_components(to, OUT_FORMAT, x, y, count, rows, pixel[0], pixel[1]);
      } else {
        for (uint i = 0u; i < 4u; ++i) pixel[0][i] = gpumap_cut_off(pixel[0][i]);
        gpumap_store_pixels(to, OUT_FORMAT, x, y, count, pixel[0], mean, scale);
      }
    }
  }
}
