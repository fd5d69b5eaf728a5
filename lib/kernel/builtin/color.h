/* SPDX-License-Identifier: MIT
 * Given to NVRTC as <gpumap/color.h>: components to red, green and blue, 0 to 255. gpumap_color.glsl is its twin.
 */
#ifndef GPUMAP_COLOR_H
#define GPUMAP_COLOR_H

#include <gpumap/kernel.h>

__device__ inline float4 gpumap_in_rgb(const gpumap_color& color, const float4& p) {
  const float a = p.x - color.offset[0], b = p.y - color.offset[1], c = p.z - color.offset[2];
  const float* m = color.matrix;
  return make_float4(fminf(fmaxf(m[0] * a + m[1] * b + m[2] * c, 0.0f), 255.0f),
                     fminf(fmaxf(m[3] * a + m[4] * b + m[5] * c, 0.0f), 255.0f),
                     fminf(fmaxf(m[6] * a + m[7] * b + m[8] * c, 0.0f), 255.0f), p.w);
}

#endif
