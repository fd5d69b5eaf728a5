// SPDX-License-Identifier: MIT
// <gpumap_sums.glsl>: compensated sums (Kahan): `lost` holds what rounding took from `sum`, negated. However many are
// added, the error stays at that of a few additions. `precise`, or a driver may cancel the terms. gpumap/sums.h is its
// twin.
#ifndef GPUMAP_SUMS_GLSL
#define GPUMAP_SUMS_GLSL

#include <gpumap.glsl>

#define GPUMAP_PLAIN_SUM 16  // so many are added up as they are, and then to the rest

// Add `value` to `sum`, whose `lost` is 0 at first. The sum is then `sum`.
void gpumap_add(inout float sum, inout float lost, float value) {
  precise const float wanted = value - lost;
  precise const float made = sum + wanted;
  precise const float beyond = (made - sum) - wanted;
  lost = beyond;
  sum = made;
}

void gpumap_add(inout vec2 sum, inout vec2 lost, vec2 value) {
  precise const vec2 wanted = value - lost;
  precise const vec2 made = sum + wanted;
  precise const vec2 beyond = (made - sum) - wanted;
  lost = beyond;
  sum = made;
}

void gpumap_add(inout vec4 sum, inout vec4 lost, vec4 value) {
  precise const vec4 wanted = value - lost;
  precise const vec4 made = sum + wanted;
  precise const vec4 beyond = (made - sum) - wanted;
  lost = beyond;
  sum = made;
}

#endif
