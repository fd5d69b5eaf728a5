// SPDX-License-Identifier: MIT
//
// Colours for rows of decibels, as kernel=spectrum db=1 gives them: black at `floor`, white at `ceiling`, the
// colours of fire between. A number becomes a pixel of four bytes, so the output is as large as the input.
// colour.comp is the twin for compute shaders.
// gpumap: params floor=-70,ceiling=-20
// gpumap: output application/x-rgba-rows
#include <gpumap/grid.h>
#include <gpumap/kernel.h>

__constant__ float fire[5][3] = {{0, 0, 0}, {0.3f, 0, 0.45f}, {0.85f, 0.2f, 0.3f}, {1, 0.7f, 0.1f}, {1, 1, 1}};

extern "C" __global__ void colour(gpumap_frame frame) {
  const float* levels = reinterpret_cast<const float*>(frame.in.plane[0]);
  gpumap_u32* pixels = reinterpret_cast<gpumap_u32*>(frame.out.plane[0]);
  for (gpumap_u64 i = gpumap_thread(); i < frame.out.bytes / 4; i += gpumap_thread_count()) {
    const float part = (levels[i] - frame.params[0]) / (frame.params[1] - frame.params[0]);
    const float height = fminf(fmaxf(part, 0.0f), 1.0f) * 4;
    const int below = min(static_cast<int>(height), 3);
    gpumap_u32 rgba = 0xFF000000u;
    for (int c = 0; c < 3; ++c) {
      const float value = fire[below][c] + (fire[below + 1][c] - fire[below][c]) * (height - below);
      rgba |= static_cast<gpumap_u32>(value * 255 + 0.5f) << (8 * c);
    }
    pixels[i] = rgba;
  }
}
