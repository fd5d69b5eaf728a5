/* SPDX-License-Identifier: MIT
 * Given to NVRTC as <gpumap/sums.h>, and to the host: compensated sums (Kahan): `lost` holds what rounding took from
 * `sum`, negated. However many are added, the error stays at that of a few additions. gpumap_sums.glsl is its twin.
 */
#ifndef GPUMAP_SUMS_H
#define GPUMAP_SUMS_H

#define GPUMAP_PLAIN_SUM 16 /* so many are added up as they are, and then to the rest */

#ifdef __CUDACC__

// Add `value` to `sum`, whose `lost` is 0 at first. The sum is then `sum`.
__device__ inline void gpumap_add(float& sum, float& lost, float value) {
  const float wanted = value - lost;
  const float made = sum + wanted;
  lost = (made - sum) - wanted;
  sum = made;
}

__device__ inline void gpumap_add(float4& sum, float4& lost, const float4& value) {
  gpumap_add(sum.x, lost.x, value.x);
  gpumap_add(sum.y, lost.y, value.y);
  gpumap_add(sum.z, lost.z, value.z);
  gpumap_add(sum.w, lost.w, value.w);
}

#endif

#endif
