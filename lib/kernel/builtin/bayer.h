/* SPDX-License-Identifier: MIT
 * Given to NVRTC as <gpumap/bayer.h>: four neighbouring pixels of a Bayer picture, bilinear. Beyond its edges the
 * picture is mirrored, about the outermost row or column, so that colours keep their places. gpumap_bayer.glsl is its
 * twin.
 */
#ifndef GPUMAP_BAYER_H
#define GPUMAP_BAYER_H

#include <gpumap/kernel.h>
#include <gpumap/words.h>

// The row or column that stands for `at`, which may lie beyond the picture: from 0 to `size` - 1.
__device__ inline gpumap_i32 gpumap_mirrored(gpumap_i32 at, gpumap_i32 size) {
  if (at < 0) return min(-at, size - 1);
  return at < size ? at : max(2 * size - 2 - at, 0);
}

// Four pixels of row y from x on, red, green, blue and 255, as large as the format's samples: to 255 in 8 bits, to what
// the caps say in 16. `format` is one of GPUMAP_FORMAT_BAYER*; pixels beyond the right edge are finite.
__device__ inline void gpumap_load_bayer(const gpumap_view& in, gpumap_u32 format, gpumap_u32 x, gpumap_u32 y,
                                         float4 (&pixel)[4]) {
  const gpumap_u32 bytes = format >= GPUMAP_FORMAT_BAYER16_BGGR ? 2 : 1;
  const gpumap_u32 order = format - (bytes == 2 ? GPUMAP_FORMAT_BAYER16_BGGR : GPUMAP_FORMAT_BAYER8_BGGR);
  float around[3][6];
  for (gpumap_i32 j = 0; j < 3; ++j) {
    const gpumap_u32 row = gpumap_mirrored(static_cast<gpumap_i32>(y) + j - 1, in.height);
    for (gpumap_i32 i = 0; i < 6; ++i) {
      const gpumap_u64 column = gpumap_mirrored(static_cast<gpumap_i32>(x) + i - 1, in.width);
      const gpumap_u64 address = in.plane[0] + static_cast<gpumap_u64>(row) * in.stride[0] + column * bytes;
      around[j][i] = static_cast<float>(gpumap_load(address, bytes));
    }
  }
  // Bit 0: red is in the odd columns, bit 1: in the odd rows.
  const gpumap_u32 red = order ^ 3;
  const bool blue_row = ((y ^ (red >> 1)) & 1) != 0;
  for (gpumap_u32 i = 0; i < 4; ++i) {
    const float own = around[1][i + 1];
    const float beside = (around[1][i] + around[1][i + 2]) * 0.5f;
    const float above = (around[0][i + 1] + around[2][i + 1]) * 0.5f;
    const float across = (around[0][i] + around[0][i + 2] + around[2][i] + around[2][i + 2]) * 0.25f;
    const bool green = ((x + i + y + (red & 1) + (red >> 1)) & 1) != 0;
    // Of the row's own colour, and of the one of the rows above and below.
    const float of_row = green ? beside : own, of_others = green ? above : across;
    pixel[i] = make_float4(blue_row ? of_others : of_row, green ? own : (beside + above) * 0.5f,
                           blue_row ? of_row : of_others, 255.0f);
  }
}

#endif
