/* SPDX-License-Identifier: MIT
 * <gpumap/color.h> in CUDA and <gpumap_color.glsl> in GLSL, one text for both (see words.h): components to red, green
 * and blue, 0 to 255; and what becomes of several pixels: colours count as much as they cover (alpha).
 */
#ifndef GPUMAP_COLOR_H
#define GPUMAP_COLOR_H

#ifdef __CUDACC__
#include <gpumap/words.h>
#else
#include <gpumap_words.glsl>
#endif

// What gpumap_load_pixels() gives in other colours, matrix * (p - offset) + base; alpha stays as it is. In floats:
// nothing is rounded or cut off.
GPUMAP_FUNCTION gpumap_f32x4 gpumap_recolored(GPUMAP_FROM(gpumap_color, color), GPUMAP_FROM(gpumap_f32x4, base),
                                              GPUMAP_FROM(gpumap_f32x4, p)) {
  const float a = p.x - color.offset[0], b = p.y - color.offset[1], c = p.z - color.offset[2];
  return gpumap_make_f32x4(color.matrix[0] * a + color.matrix[1] * b + color.matrix[2] * c + base.x,
                           color.matrix[3] * a + color.matrix[4] * b + color.matrix[5] * c + base.y,
                           color.matrix[6] * a + color.matrix[7] * b + color.matrix[8] * c + base.z, p.w);
}

// Red, green and blue cut off at 0 and 255.
GPUMAP_FUNCTION gpumap_f32x4 gpumap_cut_off(GPUMAP_FROM(gpumap_f32x4, p)) {
  return gpumap_make_f32x4(min(max(p.x, 0.0f), 255.0f), min(max(p.y, 0.0f), 255.0f), min(max(p.z, 0.0f), 255.0f), p.w);
}

// What gpumap_load_pixels() gives as red, green and blue, 0 to 255, by frame.color.
GPUMAP_FUNCTION gpumap_f32x4 gpumap_in_rgb(GPUMAP_FROM(gpumap_color, color), GPUMAP_FROM(gpumap_f32x4, p)) {
  return gpumap_cut_off(gpumap_recolored(color, gpumap_make_f32x4(0.0f, 0.0f, 0.0f, 0.0f), p));
}

// Red, green and blue, 0 to 255, as components for gpumap_store_components(), by frame.out_color.
GPUMAP_FUNCTION gpumap_f32x4 gpumap_of_rgb(GPUMAP_FROM(gpumap_color, color), GPUMAP_FROM(gpumap_f32x4, p)) {
  gpumap_color linear = color;
  for (gpumap_u32 i = 0u; i < 3u; ++i) linear.offset[i] = 0.0f;
  return gpumap_recolored(linear, gpumap_make_f32x4(color.offset[0], color.offset[1], color.offset[2], 0.0f), p);
}

// Whether pixels of `format` say what they cover: RGBA and BGRA.
GPUMAP_FUNCTION bool gpumap_has_alpha(gpumap_u32 format) {
  return format == GPUMAP_FORMAT_RGBA || format == GPUMAP_FORMAT_BGRA;
}

// What a pixel adds to a sum of several, of any weights: with alpha its colours times that.
GPUMAP_FUNCTION gpumap_f32x4 gpumap_share(gpumap_u32 format, GPUMAP_FROM(gpumap_f32x4, p)) {
  return gpumap_has_alpha(format) ? gpumap_make_f32x4(p.x * p.w, p.y * p.w, p.z * p.w, p.w) : p;
}

// The pixel of a sum of such, whose weights add up to `weights`; where nothing covers its colours are 0.
GPUMAP_FUNCTION gpumap_f32x4 gpumap_of_shares(gpumap_u32 format, GPUMAP_FROM(gpumap_f32x4, sum), float weights) {
  const float cover = gpumap_has_alpha(format) ? (sum.w > 0.0f ? sum.w : 1.0f) : weights;
  return gpumap_make_f32x4(sum.x / cover, sum.y / cover, sum.z / cover, sum.w / weights);
}

#endif
