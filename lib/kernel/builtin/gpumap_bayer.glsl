// SPDX-License-Identifier: MIT
// <gpumap_bayer.glsl>: four neighbouring pixels of a Bayer picture, bilinear. Beyond its edges the picture is mirrored,
// about the outermost row or column, so that colours keep their places. gpumap/bayer.h is its twin.
#ifndef GPUMAP_BAYER_GLSL
#define GPUMAP_BAYER_GLSL

#include <gpumap_words.glsl>

// The row or column that stands for `at`, which may lie beyond the picture: from 0 to `size` - 1.
int gpumap_mirrored(int at, int size) {
  if (at < 0) return min(-at, size - 1);
  return at < size ? at : max(2 * size - 2 - at, 0);
}

// Four pixels of row y from x on, red, green, blue and 255, as large as the format's samples: to 255 in 8 bits, to what
// the caps say in 16. `format` is one of GPUMAP_FORMAT_BAYER*; pixels beyond the right edge are finite.
void gpumap_load_bayer(gpumap_view from, uint format, uint x, uint y, out vec4 pixel[4]) {
  const uint bytes = format >= GPUMAP_FORMAT_BAYER16_BGGR ? 2u : 1u;
  const uint order = format - (bytes == 2u ? GPUMAP_FORMAT_BAYER16_BGGR : GPUMAP_FORMAT_BAYER8_BGGR);
  float around[3][6];
  for (int j = 0; j < 3; ++j) {
    const uint row = uint(gpumap_mirrored(int(y) + j - 1, int(from.height)));
    for (int i = 0; i < 6; ++i) {
      const uint64_t column = uint64_t(gpumap_mirrored(int(x) + i - 1, int(from.width)));
      const uint64_t address = from.plane[0] + uint64_t(row) * uint64_t(from.stride[0]) + column * uint64_t(bytes);
      around[j][i] = float(gpumap_load(address, bytes));
    }
  }
  // Bit 0: red is in the odd columns, bit 1: in the odd rows.
  const uint red = order ^ 3u;
  const bool blue_row = ((y ^ (red >> 1)) & 1u) != 0u;
  for (uint i = 0u; i < 4u; ++i) {
    const float own = around[1][i + 1u];
    const float beside = (around[1][i] + around[1][i + 2u]) * 0.5;
    const float above = (around[0][i + 1u] + around[2][i + 1u]) * 0.5;
    const float across = (around[0][i] + around[0][i + 2u] + around[2][i] + around[2][i + 2u]) * 0.25;
    const bool green = ((x + i + y + (red & 1u) + (red >> 1)) & 1u) != 0u;
    // Of the row's own colour, and of the one of the rows above and below.
    const float of_row = green ? beside : own, of_others = green ? above : across;
    pixel[i] = vec4(blue_row ? of_others : of_row, green ? own : (beside + above) * 0.5,
                    blue_row ? of_row : of_others, 255.0);
  }
}

#endif
