/* SPDX-License-Identifier: MIT
 * Given to NVRTC as <gpumap/color.h>: components to red, green and blue, 0 to 255; and what becomes of
 * several pixels: colours count as much as they cover (alpha). gpumap_color.glsl is its twin.
 */
#ifndef GPUMAP_COLOR_H
#define GPUMAP_COLOR_H

#include <gpumap/kernel.h>

// What gpumap_load_pixels() gives as red, green and blue, 0 to 255, by frame.color; alpha stays as it is. In floats:
// nothing is rounded.
__device__ inline float4 gpumap_in_rgb(const gpumap_color& color, const float4& p) {
  const float a = p.x - color.offset[0], b = p.y - color.offset[1], c = p.z - color.offset[2];
  const float* m = color.matrix;
  return make_float4(fminf(fmaxf(m[0] * a + m[1] * b + m[2] * c, 0.0f), 255.0f),
                     fminf(fmaxf(m[3] * a + m[4] * b + m[5] * c, 0.0f), 255.0f),
                     fminf(fmaxf(m[6] * a + m[7] * b + m[8] * c, 0.0f), 255.0f), p.w);
}

// Whether pixels of `format` say what they cover: RGBA and BGRA.
__device__ inline bool gpumap_has_alpha(gpumap_u32 format) {
  return format == GPUMAP_FORMAT_RGBA || format == GPUMAP_FORMAT_BGRA;
}

// What a pixel adds to a sum of several, of any weights: with alpha its colours times that.
__device__ inline float4 gpumap_share(gpumap_u32 format, const float4& p) {
  return gpumap_has_alpha(format) ? make_float4(p.x * p.w, p.y * p.w, p.z * p.w, p.w) : p;
}

// The pixel of a sum of such, whose weights add up to `weights`; where nothing covers its colours are 0.
__device__ inline float4 gpumap_of_shares(gpumap_u32 format, const float4& sum, float weights) {
  const float cover = gpumap_has_alpha(format) ? (sum.w > 0.0f ? sum.w : 1.0f) : weights;
  return make_float4(sum.x / cover, sum.y / cover, sum.z / cover, sum.w / weights);
}

#endif
