/* SPDX-License-Identifier: MIT
 * <gpumap/bayer.h> in CUDA and <gpumap_bayer.glsl> in GLSL, one text for both (see words.h): four neighbouring pixels
 * of a Bayer picture, bilinear. Beyond its edges the picture is mirrored, about the outermost row or column, so that
 * colours keep their places.
 */
#ifndef GPUMAP_BAYER_H
#define GPUMAP_BAYER_H

#ifdef __CUDACC__
#include <gpumap/words.h>
#else
#include <gpumap_words.glsl>
#endif

// The row or column that stands for `at`, which may lie beyond the picture: from 0 to `size` - 1.
GPUMAP_FUNCTION gpumap_u32 gpumap_mirrored(gpumap_i32 at, gpumap_u32 size) {
  const gpumap_i32 last = gpumap_i32(size) - 1;
  return gpumap_u32(at < 0 ? min(-at, last) : at <= last ? at : max(2 * last - at, 0));
}

// Four pixels of row y from x on, red, green, blue and 255, as large as the format's samples: to 255 in 8 bits, to what
// the caps say in 16. `format` is one of GPUMAP_FORMAT_BAYER*; pixels beyond the right edge are finite.
GPUMAP_FUNCTION void gpumap_load_bayer(GPUMAP_FROM(gpumap_view, from), gpumap_u32 format, gpumap_u32 x, gpumap_u32 y,
                                       GPUMAP_TO_FOUR(gpumap_f32x4, pixel)) {
  const gpumap_u32 bytes = format >= GPUMAP_FORMAT_BAYER16_BGGR ? 2u : 1u;
  const gpumap_u32 order = format - (bytes == 2u ? GPUMAP_FORMAT_BAYER16_BGGR : GPUMAP_FORMAT_BAYER8_BGGR);
  float around[3][6];
  for (gpumap_i32 j = 0; j < 3; ++j) {
    const gpumap_u64 row = gpumap_row(from, 0u, gpumap_mirrored(gpumap_i32(y) + j - 1, from.height));
    for (gpumap_i32 i = 0; i < 6; ++i) {
      const gpumap_u32 column = gpumap_mirrored(gpumap_i32(x) + i - 1, from.width);
      around[j][i] = float(gpumap_load(row + gpumap_u64(bytes * column), bytes));
    }
  }
  // Bit 0: red is in the odd columns, bit 1: in the odd rows.
  const gpumap_u32 red = order ^ 3u;
  const bool blue_row = ((y ^ (red >> 1)) & 1u) != 0u;
  for (gpumap_u32 i = 0u; i < 4u; ++i) {
    const float own = around[1][i + 1u];
    const float beside = (around[1][i] + around[1][i + 2u]) * 0.5f;
    const float above = (around[0][i + 1u] + around[2][i + 1u]) * 0.5f;
    const float across = (around[0][i] + around[0][i + 2u] + around[2][i] + around[2][i + 2u]) * 0.25f;
    const bool green = ((x + i + y + (red & 1u) + (red >> 1)) & 1u) != 0u;
    // Of the row's own colour, and of the one of the rows above and below.
    const float of_row = green ? beside : own, of_others = green ? above : across;
    pixel[i] = gpumap_make_f32x4(blue_row ? of_others : of_row, green ? own : (beside + above) * 0.5f,
                                 blue_row ? of_row : of_others, 255.0f);
  }
}

#endif
