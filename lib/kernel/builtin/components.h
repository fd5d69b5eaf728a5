/* SPDX-License-Identifier: MIT
 * <gpumap/components.h> in CUDA and <gpumap_components.glsl> in GLSL, one text for both (see words.h): pixels as their
 * components Y Cb Cr into the formats of luma that `convert` makes. Pixels that share their chroma have the mean of
 * theirs: it belongs to their common centre.
 */
#ifndef GPUMAP_COMPONENTS_H
#define GPUMAP_COMPONENTS_H

#ifdef __CUDACC__
#include <gpumap/pixels.h>
#else
#include <gpumap_pixels.glsl>
#endif

// Whether gpumap_store_components() makes `format`: NV12, I420, P010, YUY2, Y444 and GRAY8.
GPUMAP_FUNCTION bool gpumap_has_luma(gpumap_u32 format) {
  return format == GPUMAP_FORMAT_NV12 || format == GPUMAP_FORMAT_I420 || format == GPUMAP_FORMAT_P010 ||
         format == GPUMAP_FORMAT_YUY2 || format == GPUMAP_FORMAT_Y444 || format == GPUMAP_FORMAT_GRAY8;
}

// How many pixels side by side, and how many rows, have to be stored together: 1 or 2.
GPUMAP_FUNCTION gpumap_u32 gpumap_unit_width(gpumap_u32 format) {
  const bool has_chroma = gpumap_has_luma(format) && format != GPUMAP_FORMAT_GRAY8;
  return has_chroma ? 1u + gpumap_planes_of(format).across : 1u;
}
GPUMAP_FUNCTION gpumap_u32 gpumap_unit_height(gpumap_u32 format) {
  return gpumap_has_luma(format) ? 1u + gpumap_planes_of(format).down : 1u;
}

// To the nearest whole number, from 0 to `most`.
GPUMAP_FUNCTION gpumap_u32 gpumap_whole(float value, float most) {
  return gpumap_u32(min(max(value, 0.0f), most) + 0.5f);
}

// The first `count`, 0 to 4, of elements of `bytes` bytes each (1 or 2; no bit above them set) to `address`.
GPUMAP_FUNCTION void gpumap_store_elements(gpumap_u64 address, GPUMAP_FOUR(gpumap_u32, element), gpumap_u32 bytes,
                                           gpumap_u32 count) {
  if (bytes == 1u) {
    gpumap_store(address, element[0] | element[1] << 8 | element[2] << 16 | element[3] << 24, count);
  } else {
    gpumap_store(address, element[0] | element[1] << 16, 2u * min(count, 2u));
    if (count > 2u) gpumap_store(address + gpumap_u64(4u), element[2] | element[3] << 16, 2u * (count - 2u));
  }
}

// `count` pixels, 1 to 4, of `rows` rows, 1 or 2, from (x, y) on: of row y `upper`, of the next one `lower`. x is a
// multiple of gpumap_unit_width(), y of gpumap_unit_height(); fewer pixels or rows than that are a picture's last ones.
// Nothing beyond them is written, but the second luma of YUY2's last pair, which is the first one's. Components are as
// large as the format makes them, to 255 or 1023; what is beyond is cut off.
GPUMAP_FUNCTION void gpumap_store_components(GPUMAP_FROM(gpumap_view, to), gpumap_u32 format, gpumap_u32 x,
                                             gpumap_u32 y, gpumap_u32 count, gpumap_u32 rows,
                                             GPUMAP_FOUR(gpumap_f32x4, upper), GPUMAP_FOUR(gpumap_f32x4, lower)) {
  const gpumap_planes planes = gpumap_planes_of(format);
  const float most = format == GPUMAP_FORMAT_P010 ? 1023.0f : 255.0f;
  gpumap_u32 luma[4], cb[4], cr[4];
  for (gpumap_u32 row = 0u; row < rows; ++row) {
    for (gpumap_u32 i = 0u; i < 4u; ++i) {
      luma[i] = gpumap_whole(row == 0u ? upper[i].x : lower[i].x, most) << planes.shift;
    }
    if (format == GPUMAP_FORMAT_YUY2) break;
    const gpumap_u64 address = gpumap_row(to, 0u, y + row) + gpumap_u64(planes.bytes * x);
    gpumap_store_elements(address, luma, planes.bytes, count);
  }
  if (format == GPUMAP_FORMAT_GRAY8) return;
  for (gpumap_u32 i = 0u; i < 4u; i += 1u + planes.across) {
    const gpumap_f32x4 right = i + planes.across < count ? upper[i + planes.across] : upper[i];
    const gpumap_f32x4 below = rows > 1u ? lower[i] : upper[i];
    const gpumap_f32x4 last = rows == 1u ? right : i + planes.across < count ? lower[i + planes.across] : lower[i];
    const float mean_cb = 0.25f * (upper[i].y + right.y + below.y + last.y);
    const float mean_cr = 0.25f * (upper[i].z + right.z + below.z + last.z);
    cb[i >> planes.across] = gpumap_whole(mean_cb, most) << planes.shift;
    cr[i >> planes.across] = gpumap_whole(mean_cr, most) << planes.shift;
  }
  const gpumap_u32 column = x >> planes.across, row = y >> planes.down;
  const gpumap_u32 chroma = (count + planes.across) >> planes.across;
  if (format == GPUMAP_FORMAT_YUY2) {
    for (gpumap_u32 pair = 0u; pair < chroma; ++pair) {
      const gpumap_u32 second = 2u * pair + 1u < count ? luma[2u * pair + 1u] : luma[2u * pair];
      const gpumap_u32 word = luma[2u * pair] | cb[pair] << 8 | second << 16 | cr[pair] << 24;
      gpumap_store(gpumap_row(to, 0u, y) + gpumap_u64(2u * x + 4u * pair), word, 4u);
    }
  } else if (planes.pairs) {
    cb[3] = cr[1], cb[2] = cb[1], cb[1] = cr[0];
    gpumap_store_elements(gpumap_row(to, 1u, row) + gpumap_u64(planes.bytes * 2u * column), cb, planes.bytes,
                          2u * chroma);
  } else {
    gpumap_store_elements(gpumap_row(to, 1u, row) + gpumap_u64(planes.bytes * column), cb, planes.bytes, chroma);
    gpumap_store_elements(gpumap_row(to, 2u, row) + gpumap_u64(planes.bytes * column), cr, planes.bytes, chroma);
  }
}

#endif
