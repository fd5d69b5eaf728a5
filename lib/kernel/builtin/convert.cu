// SPDX-License-Identifier: MIT
// Video, or a part of it, to video of another format or size, or to a tensor; to a much smaller size that is for
// convert_down and convert_across. A thread makes 4 neighbouring pixels of a
// row, or of two rows that share their chroma. Right for any grid, size and stride. Formats may be known when this is
// compiled: what is not needed is then not in the code. color goes from the input's colours to the output's, where
// params 14 to 16 are added.
// gpumap: params mean=[0,0,0],scale=[1,1,1],crop=[0,0,0,0]
// gpumap: work quad
// gpumap: output converted
// gpumap: launch per-field
#include <gpumap/color.h>
#include <gpumap/components.h>
#include <gpumap/kernel.h>
#include <gpumap/pixels.h>
#include <gpumap/taps.h>
#include <gpumap/tensors.h>

#ifdef GPUMAP_FIXED
#define IN_FORMAT GPUMAP_FIXED_IN
#define OUT_FORMAT GPUMAP_FIXED_OUT
#define RESAMPLES GPUMAP_FIXED_RESAMPLES
#else
#define IN_FORMAT frame.in.format
#define OUT_FORMAT frame.out.format
#define RESAMPLES \
  (width != frame.out.width || height != frame.out.height || width != frame.in.width || height != frame.in.height)
#endif

// The components of an output pixel from all the input pixels that its taps reach; the crop begins at (left, top).
// `shares` is the format by whose alpha these count.
__device__ float4 resampled(const gpumap_frame& frame, gpumap_u32 shares, gpumap_u32 left, gpumap_u32 top,
                            const gpumap_taps& across, const gpumap_taps& down) {
  float4 sum = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
  for (gpumap_i32 y = down.first; y < down.end; ++y) {
    float4 in_row = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
    for (gpumap_u32 x = (left + across.first) & ~3u; x < left + across.end; x += 4) {
      float4 pixel[4];
      gpumap_load_pixels(frame.in, IN_FORMAT, x, top + y, min(4u, frame.in.width - x), pixel);
      for (gpumap_u32 i = 0; i < 4; ++i) {
        const float weight = gpumap_weight(across, static_cast<gpumap_i32>(x + i - left));
        const float4 p = gpumap_share(shares, pixel[i]);
        in_row.x += weight * p.x, in_row.y += weight * p.y, in_row.z += weight * p.z, in_row.w += weight * p.w;
      }
    }
    const float weight = gpumap_weight(down, y);
    sum.x += weight * in_row.x, sum.y += weight * in_row.y, sum.z += weight * in_row.z, sum.w += weight * in_row.w;
  }
  const float weights = static_cast<float>(gpumap_weights(across)) * static_cast<float>(gpumap_weights(down));
  return gpumap_of_shares(shares, sum, weights);
}

extern "C" __global__ void convert(gpumap_frame frame) {
  if (IN_FORMAT < GPUMAP_FORMAT_NV12 || IN_FORMAT > GPUMAP_FORMAT_P016 || frame.in.width == 0 || frame.in.height == 0) {
    return;
  }
  // The launching code has checked the crop; what lies outside the picture is not read all the same.
  const gpumap_u32 left = min(static_cast<gpumap_u32>(frame.params[6]), frame.in.width - 1);
  const gpumap_u32 top = min(static_cast<gpumap_u32>(frame.params[7]), frame.in.height - 1);
  gpumap_u32 width = static_cast<gpumap_u32>(frame.params[8]), height = static_cast<gpumap_u32>(frame.params[9]);
  if (width == 0 || width > frame.in.width - left) width = frame.in.width - left;
  if (height == 0 || height > frame.in.height - top) height = frame.in.height - top;
  // A pixel that is one of the input's keeps its colour, also where it covers nothing.
  const gpumap_u32 shares = width == frame.out.width && height == frame.out.height ? GPUMAP_FORMAT_RGB : IN_FORMAT;

  const float4 base = make_float4(frame.params[14], frame.params[15], frame.params[16], 0.0f);
  const gpumap_u32 quads = frame.out.width / 4 + (frame.out.width % 4 != 0);
  const gpumap_u32 unit = gpumap_unit_height(OUT_FORMAT);
  for (gpumap_u32 y = unit * (blockIdx.y * blockDim.y + threadIdx.y); y < frame.out.height;
       y += unit * gridDim.y * blockDim.y) {
    for (gpumap_u32 q = blockIdx.x * blockDim.x + threadIdx.x; q < quads; q += gridDim.x * blockDim.x) {
      const gpumap_u32 x = 4 * q, count = min(4u, frame.out.width - x), rows = min(unit, frame.out.height - y);
      float4 pixel[2][4];
      for (gpumap_u32 row = 0; row < unit; ++row) {
        // Beyond the picture: its last row, and the row's last pixel, again, which are not stored.
        const gpumap_u32 at = min(y + row, frame.out.height - 1);
        if (RESAMPLES) {
          const gpumap_taps down = gpumap_taps_of(at, height, frame.out.height);
          for (gpumap_u32 i = 0; i < 4; ++i) {
            const gpumap_taps across = gpumap_taps_of(min(x + i, frame.out.width - 1), width, frame.out.width);
            pixel[row][i] = resampled(frame, shares, left, top, across, down);
          }
        } else {
          gpumap_load_pixels(frame.in, IN_FORMAT, x, at, count, pixel[row]);
        }
        for (gpumap_u32 i = 0; i < 4; ++i) pixel[row][i] = gpumap_recolored(frame.color, base, pixel[row][i]);
      }
      if (gpumap_has_luma(OUT_FORMAT)) {
        gpumap_store_components(frame.out, OUT_FORMAT, x, y, count, rows, pixel[0], pixel[1]);
      } else {
        for (gpumap_u32 i = 0; i < 4; ++i) pixel[0][i] = gpumap_cut_off(pixel[0][i]);
        gpumap_store_pixels(frame.out, OUT_FORMAT, x, y, count, pixel[0], frame.params);
      }
    }
  }
}
