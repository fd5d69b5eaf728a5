/* SPDX-License-Identifier: MIT
 * <gpumap/taps.h> in CUDA and <gpumap_taps.glsl> in GLSL, one text for both (see words.h): which input pixels make an
 * output pixel along one axis, and their weights: a triangle around the output pixel's centre, one input pixel to each
 * side, or one output pixel where those are larger. So growing is bilinear, and shrinking passes no pixel over. Pixels
 * beyond the edges do not count.
 * Distances are counted in 1 / (2 * to) of an input pixel: then all of them are whole numbers, and exact, for sizes up
 * to 32767.
 */
#ifndef GPUMAP_TAPS_H
#define GPUMAP_TAPS_H

#ifdef __CUDACC__
#include <gpumap/words.h>
#else
#include <gpumap_words.glsl>
#endif

struct gpumap_taps {
  gpumap_i32 first, end; /* input pixels */
  gpumap_i32 distance;   /* of the first one from the centre */
  gpumap_i32 step;       /* from one to the next */
  gpumap_i32 reach;      /* where the triangle ends */
};

// Of output pixel `at`, 0 to `to` - 1, where `from` pixels become `to`; each 1 to 32767.
GPUMAP_FUNCTION gpumap_taps gpumap_taps_of(gpumap_u32 at, gpumap_u32 from, gpumap_u32 to) {
  const gpumap_u32 step = 2u * to, reach = 2u * max(from, to);
  // The triangle's beginning, moved by whole pixels to where nothing is negative.
  const gpumap_u32 moved = from / to + 2u;
  const gpumap_u32 begin = (2u * at + 1u) * from + step * moved - to - reach;
  const gpumap_u32 next = begin / step + 1u;
  gpumap_taps taps;
  taps.step = gpumap_i32(step);
  taps.reach = gpumap_i32(reach);
  taps.first = gpumap_i32(next) - gpumap_i32(moved);
  taps.distance = gpumap_i32(next * step - begin) - taps.reach;
  taps.end = min(taps.first + (taps.reach - taps.distance - 1) / taps.step + 1, gpumap_i32(from));
  if (taps.first < 0) {
    taps.distance -= taps.first * taps.step;
    taps.first = 0;
  }
  return taps;
}

// How much input pixel `at` counts; 0 where it makes nothing of this output pixel.
GPUMAP_FUNCTION float gpumap_weight(GPUMAP_FROM(gpumap_taps, taps), gpumap_i32 at) {
  if (at < taps.first || at >= taps.end) return 0.0f;
  return float(taps.reach - abs(taps.distance + (at - taps.first) * taps.step));
}

// Of the first so many pixels the distances from the centre, added up.
GPUMAP_FUNCTION gpumap_u32 gpumap_distances(GPUMAP_FROM(gpumap_taps, taps), gpumap_u32 first) {
  return first * gpumap_u32(taps.distance) + first * (first - 1u) / 2u * gpumap_u32(taps.step);
}

// The sum of all weights, by which a sum of pixels is to be divided, exact: in 32 bits whatever goes beyond them on the
// way comes back.
GPUMAP_FUNCTION gpumap_u32 gpumap_weights(GPUMAP_FROM(gpumap_taps, taps)) {
  const gpumap_u32 count = gpumap_u32(taps.end - taps.first);
  // Those before the centre, whose distances are negative.
  const gpumap_u32 before = min(gpumap_u32(max(taps.step - 1 - taps.distance, 0)) / gpumap_u32(taps.step), count);
  return count * gpumap_u32(taps.reach) - (gpumap_distances(taps, count) - 2u * gpumap_distances(taps, before));
}

#endif
