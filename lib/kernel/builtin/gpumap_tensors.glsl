// SPDX-License-Identifier: MIT
// <gpumap_tensors.glsl>: four neighbouring pixels, red, green, blue and alpha of 0 to 255, into any format that
// `convert` makes: video, or tensors of (rgb / 255 - mean) * scale. gpumap/tensors.h is its twin.
#ifndef GPUMAP_TENSORS_GLSL
#define GPUMAP_TENSORS_GLSL

#include <gpumap_words.glsl>

// To the nearest whole number, from 0 to 255.
uvec4 gpumap_rounded(vec4 value) { return uvec4(clamp(value, 0.0, 255.0) + 0.5); }

// To the nearest half, ties to even. How packHalf2x16 rounds is up to the driver: some cut off.
uint gpumap_half(float value) {
  const uint bits = floatBitsToUint(value);
  const uint sign = bits >> 16 & 0x8000u;
  const uint magnitude = bits & 0x7FFFFFFFu;
  // Below 2^-14 halves are multiples of 2^-24.
  if (magnitude < 0x38800000u) return sign | uint(roundEven(abs(value) * 16777216.0));
  const uint rounded = magnitude + 0xFFFu + (magnitude >> 13 & 1u);
  return sign | min((rounded - 0x38000000u) >> 13, 0x7C00u);
}

// What a tensor of elements of `bytes` bytes (4: float32, 2: float16, 1: 8 bit) has for one channel of each pixel, in
// its bits.
uvec4 gpumap_elements(vec4 channel, float mean, float scale, uint bytes) {
  const vec4 value = (channel * (1.0 / 255.0) - mean) * scale;
  if (bytes == 4u) return floatBitsToUint(value);
  if (bytes == 1u) return gpumap_rounded(value * 255.0);
  return uvec4(gpumap_half(value.x), gpumap_half(value.y), gpumap_half(value.z), gpumap_half(value.w));
}

// Red, green and blue of four pixels in turn, in elements of `bytes` bytes, from `address` on; the first `count` pixels.
void gpumap_store_interleaved(uint64_t address, uvec4 r, uvec4 g, uvec4 b, uint bytes, uint count) {
  gpumap_store_twelve(address, uvec4(r.x, g.x, b.x, r.y), uvec4(g.y, b.y, r.z, g.z), uvec4(b.z, r.w, g.w, b.w), bytes,
                      3u * count);
}

// `count` pixels, 1 to 4, of row y from x on, which is a multiple of 4; nothing beyond them is written. Red, green, blue
// and alpha are 0 to 255. `format` is RGBA, BGRA, RGB, GRAY8 or one of GPUMAP_FORMAT_RGB_*; any other writes nothing.
// `mean` and `scale` are those of each channel, of which tensors are made; else unused.
void gpumap_store_pixels(gpumap_view to, uint format, uint x, uint y, uint count, vec4 pixel[4], vec3 mean,
                         vec3 scale) {
  const uint64_t row = to.plane[0] + uint64_t(y) * uint64_t(to.stride[0]);
  const vec4 r = vec4(pixel[0].x, pixel[1].x, pixel[2].x, pixel[3].x);
  const vec4 g = vec4(pixel[0].y, pixel[1].y, pixel[2].y, pixel[3].y);
  const vec4 b = vec4(pixel[0].z, pixel[1].z, pixel[2].z, pixel[3].z);
  switch (format) {
    case GPUMAP_FORMAT_RGBA:
    case GPUMAP_FORMAT_BGRA: {
      const vec4 a = vec4(pixel[0].w, pixel[1].w, pixel[2].w, pixel[3].w);
      const uint red_shift = format == GPUMAP_FORMAT_RGBA ? 0u : 16u;
      const uvec4 word = gpumap_rounded(r) << red_shift | gpumap_rounded(g) << 8 |
                         gpumap_rounded(b) << (16u - red_shift) | gpumap_rounded(a) << 24;
      gpumap_store_four(row + 4ul * uint64_t(x), word, 4u, count);
      break;
    }
    case GPUMAP_FORMAT_RGB:
      gpumap_store_interleaved(row + 3ul * uint64_t(x), gpumap_rounded(r), gpumap_rounded(g), gpumap_rounded(b), 1u,
                               count);
      break;
    case GPUMAP_FORMAT_GRAY8:
      gpumap_store_four(row + uint64_t(x), gpumap_rounded(0.299 * r + 0.587 * g + 0.114 * b), 1u, count);
      break;
    case GPUMAP_FORMAT_RGB_F32_PLANAR:
    case GPUMAP_FORMAT_RGB_F16_PLANAR:
    case GPUMAP_FORMAT_RGB_U8_PLANAR:
    case GPUMAP_FORMAT_RGB_F32:
    case GPUMAP_FORMAT_RGB_F16:
    case GPUMAP_FORMAT_RGB_U8: {
      const bool planar = format <= GPUMAP_FORMAT_RGB_U8_PLANAR;
      const uint first = planar ? GPUMAP_FORMAT_RGB_F32_PLANAR : GPUMAP_FORMAT_RGB_F32;
      const uint bytes = 4u >> (format - first);
      const uvec4 red = gpumap_elements(r, mean.x, scale.x, bytes);
      const uvec4 green = gpumap_elements(g, mean.y, scale.y, bytes);
      const uvec4 blue = gpumap_elements(b, mean.z, scale.z, bytes);
      if (planar) {
        const uint64_t at = uint64_t(bytes) * uint64_t(x);
        gpumap_store_four(row + at, red, bytes, count);
        gpumap_store_four(to.plane[1] + uint64_t(y) * uint64_t(to.stride[1]) + at, green, bytes, count);
        gpumap_store_four(to.plane[2] + uint64_t(y) * uint64_t(to.stride[2]) + at, blue, bytes, count);
      } else {
        gpumap_store_interleaved(row + uint64_t(3u * bytes) * uint64_t(x), red, green, blue, bytes, count);
      }
      break;
    }
    default:
      break;
  }
}

#endif
