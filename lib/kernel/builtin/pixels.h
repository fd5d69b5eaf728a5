/* SPDX-License-Identifier: MIT
 * Given to NVRTC as <gpumap/pixels.h>: four neighbouring pixels of any video format that `convert` takes, as their
 * components are: Y Cb Cr or R G B, and alpha (0 to 255), in the format's own bits. Whole words are loaded where
 * addresses allow it, bytes elsewhere; chroma is replicated. gpumap_pixels.glsl is its twin.
 */
#ifndef GPUMAP_PIXELS_H
#define GPUMAP_PIXELS_H

#include <gpumap/bayer.h>
#include <gpumap/kernel.h>
#include <gpumap/words.h>

// A pixel of three components, opaque.
__device__ inline float4 gpumap_components(gpumap_u32 a, gpumap_u32 b, gpumap_u32 c) {
  return make_float4(static_cast<float>(a), static_cast<float>(b), static_cast<float>(c), 255.0f);
}

// Of the three lowest bytes of `word`, the lowest one first.
__device__ inline float4 gpumap_components(gpumap_u32 word) {
  return gpumap_components(gpumap_byte(word, 0), gpumap_byte(word, 1), gpumap_byte(word, 2));
}

// Of formats in whose rows every pixel of chroma is shared by four: NV12, I420 and P010. As gpumap_load_pixels().
__device__ inline void gpumap_load_planar(const gpumap_view& in, gpumap_u32 format, gpumap_u32 x, gpumap_u32 y,
                                          gpumap_u32 count, float4 (&pixel)[4]) {
  const gpumap_u32 pairs = (count + 1) / 2;
  const gpumap_u64 row = in.plane[0] + static_cast<gpumap_u64>(y) * in.stride[0];
  const gpumap_u64 row1 = in.plane[1] + static_cast<gpumap_u64>(y / 2) * in.stride[1];
  if (format == GPUMAP_FORMAT_P010) {
    const ushort4 luma = gpumap_load_u16(row + 2ull * x, count);
    const ushort4 chroma = gpumap_load_u16(row1 + 2ull * x, 2 * pairs);
    pixel[0] = gpumap_components(luma.x >> 6, chroma.x >> 6, chroma.y >> 6);
    pixel[1] = gpumap_components(luma.y >> 6, chroma.x >> 6, chroma.y >> 6);
    pixel[2] = gpumap_components(luma.z >> 6, chroma.z >> 6, chroma.w >> 6);
    pixel[3] = gpumap_components(luma.w >> 6, chroma.z >> 6, chroma.w >> 6);
    return;
  }
  const gpumap_u32 luma = gpumap_load(row + x, count);
  if (format == GPUMAP_FORMAT_NV12) {
    const gpumap_u32 chroma = gpumap_load(row1 + x, 2 * pairs);
    for (gpumap_u32 i = 0; i < 4; ++i) {
      const gpumap_u32 at = i / 2 * 2;
      pixel[i] = gpumap_components(gpumap_byte(luma, i), gpumap_byte(chroma, at), gpumap_byte(chroma, at + 1));
    }
  } else {
    const gpumap_u64 row2 = in.plane[2] + static_cast<gpumap_u64>(y / 2) * in.stride[2];
    const gpumap_u32 cb = gpumap_load(row1 + x / 2, pairs);
    const gpumap_u32 cr = gpumap_load(row2 + x / 2, pairs);
    for (gpumap_u32 i = 0; i < 4; ++i) {
      pixel[i] = gpumap_components(gpumap_byte(luma, i), gpumap_byte(cb, i / 2), gpumap_byte(cr, i / 2));
    }
  }
}

// Two pixels that share their chroma, from x on, which is even, of the row at address `row`: YUY2, UYVY, Y210 and v210.
// Both lie in memory, for such rows hold whole pairs.
__device__ inline void gpumap_load_pair(gpumap_u64 row, gpumap_u32 format, gpumap_u32 x, float4& first,
                                        float4& second) {
  if (format == GPUMAP_FORMAT_YUY2 || format == GPUMAP_FORMAT_UYVY) {
    // Y0 Cb Y1 Cr, or Cb Y0 Cr Y1.
    const gpumap_u32 luma = format == GPUMAP_FORMAT_YUY2 ? 0 : 1;
    const gpumap_u32 word = gpumap_load(row + 2ull * x, 4);
    const gpumap_u32 cb = gpumap_byte(word, 1 - luma), cr = gpumap_byte(word, 3 - luma);
    first = gpumap_components(gpumap_byte(word, luma), cb, cr);
    second = gpumap_components(gpumap_byte(word, luma + 2), cb, cr);
  } else if (format == GPUMAP_FORMAT_Y210) {
    const ushort4 four = gpumap_load_u16(row + 4ull * x, 4);
    first = gpumap_components(four.x >> 6, four.y >> 6, four.w >> 6);
    second = gpumap_components(four.z >> 6, four.y >> 6, four.w >> 6);
  } else {
    // Six pixels are twelve components, Cb Y Cr Y and so on, three in a word: those of a pair lie in two words.
    const gpumap_u32 component = x % 6 * 2;
    const gpumap_u64 from = row + x / 6 * 16ull + component / 3 * 4;
    const gpumap_u64 high = gpumap_load(from + 4, 4);
    const gpumap_u64 six = (gpumap_load(from, 4) & 0x3FFFFFFFu) | high << 30;
    const gpumap_u64 four = six >> (component % 3 * 10);
    const gpumap_u32 cb = four & 1023, cr = (four >> 20) & 1023;
    first = gpumap_components((four >> 10) & 1023, cb, cr);
    second = gpumap_components((four >> 30) & 1023, cb, cr);
  }
}

// RGB and BGR, or RGBA and BGRA, of the row at address `row`. As gpumap_load_pixels().
__device__ inline void gpumap_load_rgb(gpumap_u64 row, gpumap_u32 format, gpumap_u32 x, gpumap_u32 count,
                                       float4 (&pixel)[4]) {
  gpumap_u32 word[4] = {0, 0, 0, 0};
  const bool alpha = format == GPUMAP_FORMAT_RGBA || format == GPUMAP_FORMAT_BGRA;
  const gpumap_u32 bytes = alpha ? 4 : 3;
  const gpumap_u64 from = row + static_cast<gpumap_u64>(bytes) * x;
  if (alpha && count == 4 && (from & 15) == 0) {
    const uint4 four = *reinterpret_cast<const uint4*>(from);
    word[0] = four.x, word[1] = four.y, word[2] = four.z, word[3] = four.w;
  } else if (!alpha && count == 4 && (from & 3) == 0) {
    const gpumap_u32 a = gpumap_load(from, 4), b = gpumap_load(from + 4, 4), c = gpumap_load(from + 8, 4);
    word[0] = a, word[1] = a >> 24 | b << 8, word[2] = b >> 16 | c << 16, word[3] = c >> 8;
  } else {
    for (gpumap_u32 i = 0; i < 4; ++i) word[i] = i < count ? gpumap_load(from + bytes * i, bytes) : 0;
  }
  for (gpumap_u32 i = 0; i < 4; ++i) {
    const float4 p = gpumap_components(word[i]);
    const bool swapped = format == GPUMAP_FORMAT_BGR || format == GPUMAP_FORMAT_BGRA;
    pixel[i] = swapped ? make_float4(p.z, p.y, p.x, 255.0f) : p;
    if (alpha) pixel[i].w = static_cast<float>(word[i] >> 24);
  }
}

// `count` pixels, 1 to 4, of row y from x on, which is a multiple of 4, into `pixel`, whose rest is finite. Touches no
// byte beyond them. `format` is in.format, or a constant of the same value, for which a compiler makes less code; any
// but GPUMAP_FORMAT_BYTES, _VIDEO_OTHER, tensors and samples. x + count is at most the width, y less than the height.
__device__ inline void gpumap_load_pixels(const gpumap_view& in, gpumap_u32 format, gpumap_u32 x, gpumap_u32 y,
                                          gpumap_u32 count, float4 (&pixel)[4]) {
  const gpumap_u64 row = in.plane[0] + static_cast<gpumap_u64>(y) * in.stride[0];
  switch (format) {
    case GPUMAP_FORMAT_NV12:
    case GPUMAP_FORMAT_I420:
    case GPUMAP_FORMAT_P010:
      gpumap_load_planar(in, format, x, y, count, pixel);
      break;
    case GPUMAP_FORMAT_YUY2:
    case GPUMAP_FORMAT_UYVY:
    case GPUMAP_FORMAT_Y210:
    case GPUMAP_FORMAT_V210:
      gpumap_load_pair(row, format, x, pixel[0], pixel[1]);
      pixel[2] = pixel[3] = pixel[1];
      if (count > 2) gpumap_load_pair(row, format, x + 2, pixel[2], pixel[3]);
      break;
    case GPUMAP_FORMAT_GRAY8: {
      const gpumap_u32 four = gpumap_load(row + x, count);
      for (gpumap_u32 i = 0; i < 4; ++i) {
        pixel[i] = gpumap_components(gpumap_byte(four, i), gpumap_byte(four, i), gpumap_byte(four, i));
      }
      break;
    }
    case GPUMAP_FORMAT_GRAY16: {
      const ushort4 four = gpumap_load_u16(row + 2ull * x, count);
      pixel[0] = gpumap_components(four.x, four.x, four.x);
      pixel[1] = gpumap_components(four.y, four.y, four.y);
      pixel[2] = gpumap_components(four.z, four.z, four.z);
      pixel[3] = gpumap_components(four.w, four.w, four.w);
      break;
    }
    case GPUMAP_FORMAT_RGB:
    case GPUMAP_FORMAT_BGR:
    case GPUMAP_FORMAT_RGBA:
    case GPUMAP_FORMAT_BGRA:
      gpumap_load_rgb(row, format, x, count, pixel);
      break;
    default:
      gpumap_load_bayer(in, format, x, y, pixel);
  }
}

#endif
