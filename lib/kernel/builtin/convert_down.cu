// SPDX-License-Identifier: MIT
// The first of two passes of `convert` to a much smaller picture: the crop's columns, each resampled to the output's
// rows, as float4 shares (see color.h) at out.plane[0]. A thread makes 4 neighbouring columns of a row, from a multiple
// of 4 on, where pixels are loaded; out.width counts such quads. params: 6 to 9 the crop, 10 and 11 which of a row's
// taps are added up in this launch (0 begins anew, the last one divides by their weights), 12 the first row, 13 rows in
// all.
#include <gpumap/color.h>
#include <gpumap/kernel.h>
#include <gpumap/pixels.h>
#include <gpumap/sums.h>
#include <gpumap/taps.h>

extern "C" __global__ void convert_down(gpumap_frame frame) {
  const auto param = [&](int at) { return static_cast<gpumap_u32>(frame.params[at]); };
  const gpumap_u32 left = param(6), top = param(7), height = param(9), rows = param(13);
  for (gpumap_u32 y = blockIdx.y * blockDim.y + threadIdx.y; y < frame.out.height; y += gridDim.y * blockDim.y) {
    for (gpumap_u32 q = blockIdx.x * blockDim.x + threadIdx.x; q < frame.out.width; q += gridDim.x * blockDim.x) {
      const gpumap_u32 x = (left & ~3u) + 4 * q, count = min(4u, frame.in.width - x);
      const gpumap_taps taps = gpumap_taps_of(param(12) + y, height, rows);
      const gpumap_i32 first = min(taps.first + static_cast<gpumap_i32>(param(10)), taps.end);
      const gpumap_i32 end = min(taps.first + static_cast<gpumap_i32>(param(11)), taps.end);
      float4* const to =
          reinterpret_cast<float4*>(frame.out.plane[0] + static_cast<gpumap_u64>(y) * frame.out.stride[0]) + 4 * q;
      float4 sum[4], lost[4];
      for (gpumap_u32 i = 0; i < 4; ++i) {
        sum[i] = first == taps.first ? make_float4(0.0f, 0.0f, 0.0f, 0.0f) : to[i];
        lost[i] = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
      }
      for (gpumap_i32 from = first; from < end; from += GPUMAP_PLAIN_SUM) {
        float4 some[4] = {};
        for (gpumap_i32 row = from; row < min(from + GPUMAP_PLAIN_SUM, end); ++row) {
          float4 pixel[4];
          gpumap_load_pixels(frame.in, GPUMAP_FIXED_IN, x, top + row, count, pixel);
          const float weight = gpumap_weight(taps, row);
          for (gpumap_u32 i = 0; i < 4; ++i) {
            const float4 p = gpumap_share(GPUMAP_FIXED_IN, pixel[i]);
            some[i].x += weight * p.x, some[i].y += weight * p.y, some[i].z += weight * p.z, some[i].w += weight * p.w;
          }
        }
        for (gpumap_u32 i = 0; i < 4; ++i) gpumap_add(sum[i], lost[i], some[i]);
      }
      if (first == taps.end) continue;
      const float weights = end == taps.end ? static_cast<float>(gpumap_weights(taps)) : 1.0f;
      for (gpumap_u32 i = 0; i < 4; ++i) {
        to[i] = make_float4(sum[i].x / weights, sum[i].y / weights, sum[i].z / weights, sum[i].w / weights);
      }
    }
  }
}
