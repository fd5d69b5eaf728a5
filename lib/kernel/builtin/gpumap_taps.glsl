// SPDX-License-Identifier: MIT
// <gpumap_taps.glsl>: which input pixels make an output pixel along one axis, and their weights: a triangle around the
// output pixel's centre, one input pixel to each side, or one output pixel where those are larger. So growing is
// bilinear, and shrinking passes no pixel over. Pixels beyond the edges do not count.
// Distances are counted in 1 / (2 * to) of an input pixel: then all of them are whole numbers, and exact, for sizes up
// to 32767. gpumap/taps.h is its twin.
#ifndef GPUMAP_TAPS_GLSL
#define GPUMAP_TAPS_GLSL

#include <gpumap.glsl>

struct gpumap_taps {
  int first, end;  // input pixels
  int distance;    // of the first one from the centre
  int step;        // from one to the next
  int reach;       // where the triangle ends
};

// Of output pixel `at`, 0 to `to` - 1, where `from` pixels become `to`; each 1 to 32767.
gpumap_taps gpumap_taps_of(uint at, uint from, uint to) {
  const uint step = 2u * to, reach = 2u * max(from, to);
  // The triangle's beginning, moved by whole pixels to where nothing is negative.
  const uint moved = from / to + 2u;
  const uint begin = (2u * at + 1u) * from + step * moved - to - reach;
  const uint next = begin / step + 1u;
  gpumap_taps taps;
  taps.step = int(step);
  taps.reach = int(reach);
  taps.first = int(next) - int(moved);
  taps.distance = int(next * step - begin) - taps.reach;
  taps.end = min(taps.first + (taps.reach - taps.distance - 1) / taps.step + 1, int(from));
  if (taps.first < 0) {
    taps.distance -= taps.first * taps.step;
    taps.first = 0;
  }
  return taps;
}

// How much input pixel `at` counts; 0 where it makes nothing of this output pixel.
float gpumap_weight(gpumap_taps taps, int at) {
  if (at < taps.first || at >= taps.end) return 0.0;
  return float(taps.reach - abs(taps.distance + (at - taps.first) * taps.step));
}

// Of the first so many pixels the distances from the centre, added up.
uint gpumap_distances(gpumap_taps taps, uint first) {
  return first * uint(taps.distance) + first * (first - 1u) / 2u * uint(taps.step);
}

// The sum of all weights, by which a sum of pixels is to be divided, exact: in 32 bits whatever goes beyond them on the way comes back.
uint gpumap_weights(gpumap_taps taps) {
  const uint count = uint(taps.end - taps.first);
  // Those before the centre, whose distances are negative.
  const uint before = min(uint(max(taps.step - 1 - taps.distance, 0)) / uint(taps.step), count);
  return count * uint(taps.reach) - (gpumap_distances(taps, count) - 2u * gpumap_distances(taps, before));
}

#endif
