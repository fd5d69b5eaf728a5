// SPDX-License-Identifier: MIT
// <gpumap_pixels.glsl>: four neighbouring pixels of any video format that `convert` takes, as their components are:
// Y Cb Cr or R G B, and alpha (0 to 255), in the format's own bits. Whole words are loaded where addresses allow it,
// bytes elsewhere; chroma is replicated. gpumap/pixels.h is its twin.
#ifndef GPUMAP_PIXELS_GLSL
#define GPUMAP_PIXELS_GLSL

#include <gpumap_bayer.glsl>
#include <gpumap_words.glsl>

// A pixel of three components, opaque.
vec4 gpumap_components(uint a, uint b, uint c) { return vec4(float(a), float(b), float(c), 255.0); }

// Of formats in whose rows every pixel of chroma is shared by four: NV12, I420 and P010. As gpumap_load_pixels().
void gpumap_load_planar(gpumap_view from, uint format, uint x, uint y, uint count, out vec4 pixel[4]) {
  const uint pairs = (count + 1u) / 2u;
  const uint64_t row = from.plane[0] + uint64_t(y) * uint64_t(from.stride[0]);
  const uint64_t row1 = from.plane[1] + uint64_t(y / 2u) * uint64_t(from.stride[1]);
  if (format == GPUMAP_FORMAT_P010) {
    const uvec4 luma = gpumap_load_u16(row + 2ul * uint64_t(x), count) >> 6;
    const uvec4 chroma = gpumap_load_u16(row1 + 2ul * uint64_t(x), 2u * pairs) >> 6;
    for (uint i = 0u; i < 4u; ++i) {
      pixel[i] = gpumap_components(luma[i], chroma[i / 2u * 2u], chroma[i / 2u * 2u + 1u]);
    }
    return;
  }
  const uint luma = gpumap_load(row + uint64_t(x), count);
  if (format == GPUMAP_FORMAT_NV12) {
    const uint chroma = gpumap_load(row1 + uint64_t(x), 2u * pairs);
    for (uint i = 0u; i < 4u; ++i) {
      const uint at = i / 2u * 2u;
      pixel[i] = gpumap_components(gpumap_byte(luma, i), gpumap_byte(chroma, at), gpumap_byte(chroma, at + 1u));
    }
  } else {
    const uint64_t row2 = from.plane[2] + uint64_t(y / 2u) * uint64_t(from.stride[2]);
    const uint cb = gpumap_load(row1 + uint64_t(x / 2u), pairs);
    const uint cr = gpumap_load(row2 + uint64_t(x / 2u), pairs);
    for (uint i = 0u; i < 4u; ++i) {
      pixel[i] = gpumap_components(gpumap_byte(luma, i), gpumap_byte(cb, i / 2u), gpumap_byte(cr, i / 2u));
    }
  }
}

// Two pixels that share their chroma, from x on, which is even, of the row at address `row`: YUY2, UYVY, Y210 and v210.
// Both lie in memory, for such rows hold whole pairs.
void gpumap_load_pair(uint64_t row, uint format, uint x, out vec4 first, out vec4 second) {
  if (format == GPUMAP_FORMAT_YUY2 || format == GPUMAP_FORMAT_UYVY) {
    // Y0 Cb Y1 Cr, or Cb Y0 Cr Y1.
    const uint luma = format == GPUMAP_FORMAT_YUY2 ? 0u : 1u;
    const uint word = gpumap_load(row + 2ul * uint64_t(x), 4u);
    const uint cb = gpumap_byte(word, 1u - luma), cr = gpumap_byte(word, 3u - luma);
    first = gpumap_components(gpumap_byte(word, luma), cb, cr);
    second = gpumap_components(gpumap_byte(word, luma + 2u), cb, cr);
  } else if (format == GPUMAP_FORMAT_Y210) {
    const uvec4 four = gpumap_load_u16(row + 4ul * uint64_t(x), 4u) >> 6;
    first = gpumap_components(four.x, four.y, four.w);
    second = gpumap_components(four.z, four.y, four.w);
  } else {
    // Six pixels are twelve components, Cb Y Cr Y and so on, three in a word: those of a pair lie in two words.
    const uint component = x % 6u * 2u;
    const uint64_t at = row + uint64_t(x / 6u) * 16ul + uint64_t(component / 3u * 4u);
    const uint64_t six = uint64_t(gpumap_load(at, 4u) & 0x3FFFFFFFu) | uint64_t(gpumap_load(at + 4ul, 4u)) << 30;
    const uint64_t four = six >> (component % 3u * 10u);
    const uint low = uint(four) & 0x3FFFFFFFu;
    const uint cb = low & 1023u, cr = low >> 20;
    first = gpumap_components((low >> 10) & 1023u, cb, cr);
    second = gpumap_components(uint(four >> 30) & 1023u, cb, cr);
  }
}

// RGB and BGR, or RGBA and BGRA, of the row at address `row`. As gpumap_load_pixels().
void gpumap_load_rgb(uint64_t row, uint format, uint x, uint count, out vec4 pixel[4]) {
  uvec4 word = uvec4(0u);
  const bool alpha = format == GPUMAP_FORMAT_RGBA || format == GPUMAP_FORMAT_BGRA;
  const uint bytes = alpha ? 4u : 3u;
  const uint64_t from = row + uint64_t(bytes) * uint64_t(x);
  if (alpha && count == 4u && gpumap_aligned(from, 16u)) {
    word = load_u32x4(from);
  } else if (!alpha && count == 4u && gpumap_aligned(from, 4u)) {
    const uint a = load_u32(from), b = load_u32(from + 4ul), c = load_u32(from + 8ul);
    word = uvec4(a, a >> 24 | b << 8, b >> 16 | c << 16, c >> 8);
  } else {
    for (uint i = 0u; i < count; ++i) word[i] = gpumap_load(from + uint64_t(bytes * i), bytes);
  }
  for (uint i = 0u; i < 4u; ++i) {
    const vec4 p = gpumap_components(gpumap_byte(word[i], 0u), gpumap_byte(word[i], 1u), gpumap_byte(word[i], 2u));
    pixel[i] = format == GPUMAP_FORMAT_BGR || format == GPUMAP_FORMAT_BGRA ? p.zyxw : p;
    if (alpha) pixel[i].w = float(word[i] >> 24);
  }
}

// `count` pixels, 1 to 4, of row y from x on, which is a multiple of 4, into `pixel`, whose rest is finite. Touches no
// byte beyond them. `format` is from.format, or a constant of the same value, for which a compiler makes less code; any
// but GPUMAP_FORMAT_BYTES, _VIDEO_OTHER, tensors and samples. x + count is at most the width, y less than the height.
void gpumap_load_pixels(gpumap_view from, uint format, uint x, uint y, uint count, out vec4 pixel[4]) {
  const uint64_t row = from.plane[0] + uint64_t(y) * uint64_t(from.stride[0]);
  switch (format) {
    case GPUMAP_FORMAT_NV12:
    case GPUMAP_FORMAT_I420:
    case GPUMAP_FORMAT_P010:
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
    case GPUMAP_FORMAT_GRAY8: {
      const uint four = gpumap_load(row + uint64_t(x), count);
      for (uint i = 0u; i < 4u; ++i) {
        pixel[i] = gpumap_components(gpumap_byte(four, i), gpumap_byte(four, i), gpumap_byte(four, i));
      }
      break;
    }
    case GPUMAP_FORMAT_GRAY16: {
      const uvec4 four = gpumap_load_u16(row + 2ul * uint64_t(x), count);
      for (uint i = 0u; i < 4u; ++i) pixel[i] = gpumap_components(four[i], four[i], four[i]);
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
