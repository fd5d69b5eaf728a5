/* SPDX-License-Identifier: MIT
 * Given to NVRTC as <gpumap/taps.h>: which input pixels make an output pixel along one axis, and their weights: a
 * triangle around the output pixel's centre, one input pixel to each side, or one output pixel where those are larger.
 * So growing is bilinear, and shrinking passes no pixel over. Pixels beyond the edges do not count.
 * Distances are counted in 1 / (2 * to) of an input pixel: then all of them are whole numbers, and exact, for sizes up
 * to 32767. gpumap_taps.glsl is its twin.
 */
#ifndef GPUMAP_TAPS_H
#define GPUMAP_TAPS_H

#include <gpumap/kernel.h>

struct gpumap_taps {
  gpumap_i32 first, end; /* input pixels */
  gpumap_i32 distance;   /* of the first one from the centre */
  gpumap_i32 step;       /* from one to the next */
  gpumap_i32 reach;      /* where the triangle ends */
};

// Of output pixel `at`, 0 to `to` - 1, where `from` pixels become `to`; each 1 to 32767.
__device__ inline gpumap_taps gpumap_taps_of(gpumap_u32 at, gpumap_u32 from, gpumap_u32 to) {
  const gpumap_u32 step = 2 * to, reach = 2 * max(from, to);
  // The triangle's beginning, moved by whole pixels to where nothing is negative.
  const gpumap_u32 moved = from / to + 2;
  const gpumap_u32 begin = (2 * at + 1) * from + step * moved - to - reach;
  const gpumap_u32 next = begin / step + 1;
  gpumap_taps taps;
  taps.step = step;
  taps.reach = reach;
  taps.first = static_cast<gpumap_i32>(next) - static_cast<gpumap_i32>(moved);
  taps.distance = static_cast<gpumap_i32>(next * step - begin) - taps.reach;
  taps.end = min(taps.first + (taps.reach - taps.distance - 1) / taps.step + 1, static_cast<gpumap_i32>(from));
  if (taps.first < 0) {
    taps.distance -= taps.first * taps.step;
    taps.first = 0;
  }
  return taps;
}

// How much input pixel `at` counts; 0 where it makes nothing of this output pixel.
__device__ inline float gpumap_weight(const gpumap_taps& taps, gpumap_i32 at) {
  if (at < taps.first || at >= taps.end) return 0.0f;
  return static_cast<float>(taps.reach - abs(taps.distance + (at - taps.first) * taps.step));
}

// The sum of all weights, by which a sum of pixels is to be divided, exact: in 32 bits whatever goes beyond them on the
// way comes back.
__device__ inline gpumap_u32 gpumap_weights(const gpumap_taps& taps) {
  const gpumap_u32 count = taps.end - taps.first;
  // Those before the centre, whose distances are negative.
  const gpumap_u32 before = min(static_cast<gpumap_u32>(max(taps.step - 1 - taps.distance, 0)) / taps.step, count);
  const auto distances = [&](gpumap_u32 first) { return first * taps.distance + first * (first - 1) / 2 * taps.step; };
  return count * taps.reach - (distances(count) - 2 * distances(before));
}

#endif
