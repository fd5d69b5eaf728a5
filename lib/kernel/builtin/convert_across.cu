// SPDX-License-Identifier: MIT
// The second of two passes of `convert` to a much smaller picture: rows of float4 shares that convert_down left at
// in.plane[0], resampled to the output's columns, in the output's colours and format. A thread makes one pixel: there
// are few. params: as for `convert`; the first of the in.width pixels of a row lies params[6] modulo 4 before the crop.
#include <gpumap/color.h>
#include <gpumap/kernel.h>
#include <gpumap/sums.h>
#include <gpumap/taps.h>
#include <gpumap/tensors.h>

extern "C" __global__ void convert_across(gpumap_frame frame) {
  const gpumap_u32 before = static_cast<gpumap_u32>(frame.params[6]) & 3,
                   width = static_cast<gpumap_u32>(frame.params[8]);
  for (gpumap_u32 y = blockIdx.y * blockDim.y + threadIdx.y; y < frame.out.height; y += gridDim.y * blockDim.y) {
    const float4* const row =
        reinterpret_cast<const float4*>(frame.in.plane[0] + static_cast<gpumap_u64>(y) * frame.in.stride[0]) + before;
    for (gpumap_u32 x = blockIdx.x * blockDim.x + threadIdx.x; x < frame.out.width; x += gridDim.x * blockDim.x) {
      const gpumap_taps taps = gpumap_taps_of(x, width, frame.out.width);
      float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f), lost = sum;
      for (gpumap_i32 from = taps.first; from < taps.end; from += GPUMAP_PLAIN_SUM) {
        float4 some = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
        for (gpumap_i32 at = from; at < min(from + GPUMAP_PLAIN_SUM, taps.end); ++at) {
          const float4 p = row[at];
          const float weight = gpumap_weight(taps, at);
          some.x += weight * p.x, some.y += weight * p.y, some.z += weight * p.z, some.w += weight * p.w;
        }
        gpumap_add(sum, lost, some);
      }
      const float weights = static_cast<float>(gpumap_weights(taps));
      const float4 made = gpumap_in_rgb(frame.color, gpumap_of_shares(GPUMAP_FIXED_IN, sum, weights));
      const float4 pixel[4] = {made, made, made, made};
      gpumap_store_pixels(frame.out, GPUMAP_FIXED_OUT, x, y, 1, pixel, frame.params);
    }
  }
}
