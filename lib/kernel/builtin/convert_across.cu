// SPDX-License-Identifier: MIT
// The second of two passes of `convert` to a much smaller picture: rows of float4 shares that convert_down left at
// in.plane[0], resampled to the output's columns, in the output's colours and format. A thread makes one pixel, or
// those that share their chroma: there are few. params: as for `convert`; the first of the in.width pixels of a row
// lies params[6] modulo 4 before the crop.
#include <gpumap/color.h>
#include <gpumap/components.h>
#include <gpumap/kernel.h>
#include <gpumap/sums.h>
#include <gpumap/taps.h>
#include <gpumap/tensors.h>

__device__ void add_weighted(float4& sum, float weight, const float4& p) {
  sum.x += weight * p.x, sum.y += weight * p.y, sum.z += weight * p.z, sum.w += weight * p.w;
}

extern "C" __global__ void convert_across(gpumap_frame frame) {
  const gpumap_u32 before = static_cast<gpumap_u32>(frame.params[6]) & 3,
                   width = static_cast<gpumap_u32>(frame.params[8]);
  const float4 base = make_float4(frame.params[14], frame.params[15], frame.params[16], 0.0f);
  const gpumap_u32 wide = gpumap_unit_width(GPUMAP_FIXED_OUT), high = gpumap_unit_height(GPUMAP_FIXED_OUT);
  const auto row_at = [&](gpumap_u32 y) {
    return reinterpret_cast<const float4*>(gpumap_row(frame.in, 0, min(y, frame.out.height - 1))) + before;
  };
  for (gpumap_u32 y = high * (blockIdx.y * blockDim.y + threadIdx.y); y < frame.out.height;
       y += high * gridDim.y * blockDim.y) {
    const float4 *const upper = row_at(y), *const lower = row_at(y + 1);
    for (gpumap_u32 x = wide * (blockIdx.x * blockDim.x + threadIdx.x); x < frame.out.width;
         x += wide * gridDim.x * blockDim.x) {
      // One loop for all: lavapipe ends a thread's loops after so many turns.
      const gpumap_taps left = gpumap_taps_of(x, width, frame.out.width);
      const gpumap_taps right = gpumap_taps_of(min(x + wide, frame.out.width) - 1, width, frame.out.width);
      float4 sum[4] = {}, lost[4] = {};
      for (gpumap_i32 from = left.first; from < right.end; from += GPUMAP_PLAIN_SUM) {
        float4 some[4] = {};
        for (gpumap_i32 at = from; at < min(from + GPUMAP_PLAIN_SUM, right.end); ++at) {
          const float of_left = gpumap_weight(left, at), of_right = gpumap_weight(right, at);
          add_weighted(some[0], of_left, upper[at]);
          if (wide > 1) add_weighted(some[1], of_right, upper[at]);
          if (high > 1) add_weighted(some[2], of_left, lower[at]);
          if (high > 1) add_weighted(some[3], of_right, lower[at]);
        }
        for (gpumap_u32 i = 0; i < wide * high; ++i) gpumap_add(sum[i], lost[i], some[i]);
      }
      float4 made[4];
      for (gpumap_u32 i = 0; i < 4; ++i) {
        const float weights = static_cast<float>(gpumap_weights(i % 2 == 0 ? left : right));
        made[i] = gpumap_recolored(frame.color, base, gpumap_of_shares(GPUMAP_FIXED_IN, sum[i], weights));
      }
      const float4 first[4] = {made[0], made[1], made[1], made[1]}, second[4] = {made[2], made[3], made[3], made[3]};
      if (gpumap_has_luma(GPUMAP_FIXED_OUT)) {
        gpumap_store_components(frame.out, GPUMAP_FIXED_OUT, x, y, min(wide, frame.out.width - x),
                                min(high, frame.out.height - y), first, second);
      } else {
        const float4 cut_off = gpumap_cut_off(made[0]);
        const float4 pixel[4] = {cut_off, cut_off, cut_off, cut_off};
        gpumap_store_pixels(frame.out, GPUMAP_FIXED_OUT, x, y, 1, pixel, frame.params);
      }
    }
  }
}
