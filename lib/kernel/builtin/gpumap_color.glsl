// SPDX-License-Identifier: MIT
// <gpumap_color.glsl>: components to red, green and blue, 0 to 255; and what becomes of several pixels: colours
// count as much as they cover (alpha). gpumap/color.h is its twin.
#ifndef GPUMAP_COLOR_GLSL
#define GPUMAP_COLOR_GLSL

#include <gpumap.glsl>

// What gpumap_load_pixels() gives as red, green and blue, 0 to 255, by frame.color; alpha stays as it is. In floats:
// nothing is rounded.
vec4 gpumap_in_rgb(gpumap_color color, vec4 p) {
  const float a = p.x - color.offset[0], b = p.y - color.offset[1], c = p.z - color.offset[2];
  const vec3 rgb = vec3(color.matrix[0] * a + color.matrix[1] * b + color.matrix[2] * c,
                        color.matrix[3] * a + color.matrix[4] * b + color.matrix[5] * c,
                        color.matrix[6] * a + color.matrix[7] * b + color.matrix[8] * c);
  return vec4(clamp(rgb, 0.0, 255.0), p.w);
}

// Whether pixels of `format` say what they cover: RGBA and BGRA.
bool gpumap_has_alpha(uint format) { return format == GPUMAP_FORMAT_RGBA || format == GPUMAP_FORMAT_BGRA; }

// What a pixel adds to a sum of several, of any weights: with alpha its colours times that.
vec4 gpumap_share(uint format, vec4 p) { return gpumap_has_alpha(format) ? vec4(p.xyz * p.w, p.w) : p; }

// The pixel of a sum of such, whose weights add up to `weights`; where nothing covers its colours are 0.
vec4 gpumap_of_shares(uint format, vec4 sum, float weights) {
  const float cover = gpumap_has_alpha(format) ? (sum.w > 0.0 ? sum.w : 1.0) : weights;
  return vec4(sum.xyz / cover, sum.w / weights);
}

#endif
