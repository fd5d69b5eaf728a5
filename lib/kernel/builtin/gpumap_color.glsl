// SPDX-License-Identifier: MIT
// <gpumap_color.glsl>: components to red, green and blue, 0 to 255. gpumap/color.h is its twin.
#ifndef GPUMAP_COLOR_GLSL
#define GPUMAP_COLOR_GLSL

vec4 gpumap_in_rgb(gpumap_color color, vec4 p) {
  const float a = p.x - color.offset[0], b = p.y - color.offset[1], c = p.z - color.offset[2];
  const vec3 rgb = vec3(color.matrix[0] * a + color.matrix[1] * b + color.matrix[2] * c,
                        color.matrix[3] * a + color.matrix[4] * b + color.matrix[5] * c,
                        color.matrix[6] * a + color.matrix[7] * b + color.matrix[8] * c);
  return vec4(clamp(rgb, 0.0, 255.0), p.w);
}

#endif
