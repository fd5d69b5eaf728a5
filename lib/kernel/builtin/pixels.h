/* SPDX-License-Identifier: MIT
 * <gpumap/pixels.h> in CUDA and <gpumap_pixels.glsl> in GLSL, one text for both (see words.h): four neighbouring pixels
 * of any video format that `convert` takes, as their components are: Y Cb Cr or R G B, and alpha (0 to 255), in the
 * format's own bits. Whole words are loaded where addresses allow it, bytes elsewhere; chroma is replicated.
 */
#ifndef GPUMAP_PIXELS_H
#define GPUMAP_PIXELS_H

#ifdef __CUDACC__
#include <gpumap/bayer.h>
#include <gpumap/words.h>
#else
#include <gpumap_bayer.glsl>
#include <gpumap_words.glsl>
#endif

// How YUV lies in memory whose components have planes of their own, or chroma one plane together.
struct gpumap_planes {
  gpumap_u32 bytes;  /* of a component, 1 or 2 */
  gpumap_u32 shift;  /* bits below it in these */
  gpumap_u32 mask;   /* of its own bits */
  gpumap_u32 across; /* 1 where two pixels side by side share their chroma, else 0 */
  gpumap_u32 down;   /* 1 where two rows do, else 0 */
  bool pairs;        /* Cb and Cr lie side by side in one plane */
};

// Of any such format. Of YUY2, which is packed, `across` and `down` are right, too.
GPUMAP_FUNCTION gpumap_planes gpumap_planes_of(gpumap_u32 format) {
  const bool low_ten = format == GPUMAP_FORMAT_I420_10 || format == GPUMAP_FORMAT_Y444_10;
  gpumap_planes planes;
  planes.pairs = format == GPUMAP_FORMAT_NV12 || format == GPUMAP_FORMAT_P010 || format == GPUMAP_FORMAT_P016;
  planes.bytes = low_ten || (planes.pairs && format != GPUMAP_FORMAT_NV12) ? 2u : 1u;
  planes.shift = format == GPUMAP_FORMAT_P010 ? 6u : 0u;
  planes.mask = low_ten || format == GPUMAP_FORMAT_P010 ? 1023u : 65535u;
  planes.across = format == GPUMAP_FORMAT_Y444 || format == GPUMAP_FORMAT_Y444_10 ? 0u : 1u;
  planes.down = planes.pairs || format == GPUMAP_FORMAT_I420 || format == GPUMAP_FORMAT_I420_10 ? 1u : 0u;
  return planes;
}

// A pixel of three components, opaque.
GPUMAP_FUNCTION gpumap_f32x4 gpumap_components(gpumap_u32 a, gpumap_u32 b, gpumap_u32 c) {
  return gpumap_make_f32x4(float(a), float(b), float(c), 255.0f);
}

// `count` numbers of `bytes` bytes each, 1 or 2, from `address` on, which may be any; 0 for the rest.
GPUMAP_FUNCTION void gpumap_load_four(gpumap_u64 address, gpumap_u32 bytes, gpumap_u32 count,
                                      GPUMAP_TO_FOUR(gpumap_u32, four)) {
  if (bytes == 1u) {
    const gpumap_u32 word = gpumap_load(address, count);
    for (gpumap_u32 i = 0u; i < 4u; ++i) four[i] = gpumap_byte(word, i);
  } else {
    const gpumap_u16x4 words = gpumap_load_u16(address, count);
    four[0] = words.x, four[1] = words.y, four[2] = words.z, four[3] = words.w;
  }
}

// Of formats that gpumap_planes tells. As gpumap_load_pixels().
GPUMAP_FUNCTION void gpumap_load_planar(GPUMAP_FROM(gpumap_view, from), gpumap_u32 format, gpumap_u32 x, gpumap_u32 y,
                                        gpumap_u32 count, GPUMAP_TO_FOUR(gpumap_f32x4, pixel)) {
  const gpumap_planes planes = gpumap_planes_of(format);
  const gpumap_u32 column = x >> planes.across, row = y >> planes.down;
  const gpumap_u32 chroma = (count + planes.across) >> planes.across;
  gpumap_u32 luma[4], cb[4], cr[4];
  gpumap_load_four(gpumap_row(from, 0u, y) + gpumap_u64(planes.bytes * x), planes.bytes, count, luma);
  if (planes.pairs) {
    gpumap_load_four(gpumap_row(from, 1u, row) + gpumap_u64(planes.bytes * 2u * column), planes.bytes, 2u * chroma, cb);
    cr[0] = cb[1], cr[1] = cb[3], cb[1] = cb[2];
  } else {
    gpumap_load_four(gpumap_row(from, 1u, row) + gpumap_u64(planes.bytes * column), planes.bytes, chroma, cb);
    gpumap_load_four(gpumap_row(from, 2u, row) + gpumap_u64(planes.bytes * column), planes.bytes, chroma, cr);
  }
  for (gpumap_u32 i = 0u; i < 4u; ++i) {
    const gpumap_u32 at = i >> planes.across;
    pixel[i] = gpumap_components((luma[i] >> planes.shift) & planes.mask, (cb[at] >> planes.shift) & planes.mask,
                                 (cr[at] >> planes.shift) & planes.mask);
  }
}

// Two pixels that share their chroma, from x on, which is even, of the row at address `row`: YUY2, UYVY, Y210 and v210.
// Both lie in memory, for such rows hold whole pairs.
GPUMAP_FUNCTION void gpumap_load_pair(gpumap_u64 row, gpumap_u32 format, gpumap_u32 x, GPUMAP_TO(gpumap_f32x4, first),
                                      GPUMAP_TO(gpumap_f32x4, second)) {
  if (format == GPUMAP_FORMAT_YUY2 || format == GPUMAP_FORMAT_UYVY) {
    // Y0 Cb Y1 Cr, or Cb Y0 Cr Y1.
    const gpumap_u32 luma = format == GPUMAP_FORMAT_YUY2 ? 0u : 1u;
    const gpumap_u32 word = gpumap_load(row + gpumap_u64(2u * x), 4u);
    const gpumap_u32 cb = gpumap_byte(word, 1u - luma), cr = gpumap_byte(word, 3u - luma);
    first = gpumap_components(gpumap_byte(word, luma), cb, cr);
    second = gpumap_components(gpumap_byte(word, luma + 2u), cb, cr);
  } else if (format == GPUMAP_FORMAT_Y210) {
    gpumap_u32 four[4];
    gpumap_load_four(row + gpumap_u64(4u * x), 2u, 4u, four);
    first = gpumap_components(four[0] >> 6, four[1] >> 6, four[3] >> 6);
    second = gpumap_components(four[2] >> 6, four[1] >> 6, four[3] >> 6);
  } else {
    // Six pixels are twelve components, Cb Y Cr Y and so on, three in a word: those of a pair lie in two words.
    const gpumap_u32 component = x % 6u * 2u;
    const gpumap_u64 at = row + gpumap_u64(x / 6u * 16u + component / 3u * 4u);
    const gpumap_u64 high = gpumap_u64(gpumap_load(at + gpumap_u64(4u), 4u));
    const gpumap_u64 six = gpumap_u64(gpumap_load(at, 4u) & 0x3FFFFFFFu) | high << 30;
    const gpumap_u64 four = six >> (component % 3u * 10u);
    const gpumap_u32 low = gpumap_u32(four) & 0x3FFFFFFFu;
    const gpumap_u32 cb = low & 1023u, cr = low >> 20;
    first = gpumap_components((low >> 10) & 1023u, cb, cr);
    second = gpumap_components(gpumap_u32(four >> 30) & 1023u, cb, cr);
  }
}

// RGB and BGR, or RGBA and BGRA, of the row at address `row`. As gpumap_load_pixels().
GPUMAP_FUNCTION void gpumap_load_rgb(gpumap_u64 row, gpumap_u32 format, gpumap_u32 x, gpumap_u32 count,
                                     GPUMAP_TO_FOUR(gpumap_f32x4, pixel)) {
  gpumap_u32 word[4];
  const bool alpha = format == GPUMAP_FORMAT_RGBA || format == GPUMAP_FORMAT_BGRA;
  const bool swapped = format == GPUMAP_FORMAT_BGR || format == GPUMAP_FORMAT_BGRA;
  const gpumap_u32 bytes = alpha ? 4u : 3u;
  const gpumap_u64 from = row + gpumap_u64(bytes) * gpumap_u64(x);
  if (alpha && count == 4u && gpumap_aligned(from, 16u)) {
    const gpumap_u32x4 four = gpumap_load_u32x4(from);
    word[0] = four.x, word[1] = four.y, word[2] = four.z, word[3] = four.w;
  } else if (!alpha && count == 4u && gpumap_aligned(from, 4u)) {
    const gpumap_u32 a = gpumap_load(from, 4u), b = gpumap_load(from + gpumap_u64(4u), 4u);
    const gpumap_u32 c = gpumap_load(from + gpumap_u64(8u), 4u);
    word[0] = a, word[1] = a >> 24 | b << 8, word[2] = b >> 16 | c << 16, word[3] = c >> 8;
  } else {
    for (gpumap_u32 i = 0u; i < 4u; ++i) word[i] = gpumap_load(from + gpumap_u64(bytes * i), i < count ? bytes : 0u);
  }
  for (gpumap_u32 i = 0u; i < 4u; ++i) {
    const gpumap_u32 first = gpumap_byte(word[i], 0u), last = gpumap_byte(word[i], 2u);
    pixel[i] = gpumap_components(swapped ? last : first, gpumap_byte(word[i], 1u), swapped ? first : last);
    if (alpha) pixel[i].w = float(word[i] >> 24);
  }
}

// `count` pixels, 1 to 4, of row y from x on, which is a multiple of 4, into `pixel`, whose rest is finite. Touches no
// byte beyond them. `format` is from.format, or a constant of the same value, for which a compiler makes less code; any
// but GPUMAP_FORMAT_BYTES, _VIDEO_OTHER, tensors and samples. x + count is at most the width, y less than the height.
GPUMAP_FUNCTION void gpumap_load_pixels(GPUMAP_FROM(gpumap_view, from), gpumap_u32 format, gpumap_u32 x, gpumap_u32 y,
                                        gpumap_u32 count, GPUMAP_TO_FOUR(gpumap_f32x4, pixel)) {
  const gpumap_u64 row = gpumap_row(from, 0u, y);
  switch (format) {
    case GPUMAP_FORMAT_NV12:
    case GPUMAP_FORMAT_I420:
    case GPUMAP_FORMAT_P010:
    case GPUMAP_FORMAT_Y42B:
    case GPUMAP_FORMAT_Y444:
    case GPUMAP_FORMAT_I420_10:
    case GPUMAP_FORMAT_Y444_10:
    case GPUMAP_FORMAT_P016:
      gpumap_load_planar(from, format, x, y, count, pixel);
      break;
    case GPUMAP_FORMAT_YUY2:
    case GPUMAP_FORMAT_UYVY:
    case GPUMAP_FORMAT_Y210:
    case GPUMAP_FORMAT_V210:
      gpumap_load_pair(row, format, x, pixel[0], pixel[1]);
      pixel[2] = pixel[3] = pixel[1];
      if (count > 2u) gpumap_load_pair(row, format, x + 2u, pixel[2], pixel[3]);
      break;
    case GPUMAP_FORMAT_GRAY8:
    case GPUMAP_FORMAT_GRAY16: {
      const gpumap_u32 bytes = format == GPUMAP_FORMAT_GRAY8 ? 1u : 2u;
      gpumap_u32 four[4];
      gpumap_load_four(row + gpumap_u64(bytes * x), bytes, count, four);
      for (gpumap_u32 i = 0u; i < 4u; ++i) pixel[i] = gpumap_components(four[i], four[i], four[i]);
      break;
    }
    case GPUMAP_FORMAT_RGB:
    case GPUMAP_FORMAT_BGR:
    case GPUMAP_FORMAT_RGBA:
    case GPUMAP_FORMAT_BGRA:
      gpumap_load_rgb(row, format, x, count, pixel);
      break;
    default:
      gpumap_load_bayer(from, format, x, y, pixel);
  }
}

#endif
