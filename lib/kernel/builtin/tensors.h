/* SPDX-License-Identifier: MIT
 * Given to NVRTC as <gpumap/tensors.h>: four neighbouring pixels, red, green, blue and alpha of 0 to 255, into any
 * format that `convert` makes: video, or tensors of (rgb / 255 - mean) * scale. gpumap_tensors.glsl is its twin.
 */
#ifndef GPUMAP_TENSORS_H
#define GPUMAP_TENSORS_H

#include <gpumap/kernel.h>
#include <gpumap/words.h>

// To the nearest whole number, from 0 to 255.
__device__ inline gpumap_u32 gpumap_rounded(float value) {
  return static_cast<gpumap_u32>(fminf(fmaxf(value, 0.0f), 255.0f) + 0.5f);
}

// To the nearest half, ties to even. cuda_fp16.h is a file of the toolkit, which NVRTC may come without.
__device__ inline gpumap_u32 gpumap_half(float value) {
  unsigned short half;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half) : "f"(value));
  return half;
}

// Red, green or blue: 0, 1 or 2.
__device__ inline float gpumap_channel(const float4& pixel, gpumap_u32 channel) {
  return channel == 0 ? pixel.x : channel == 1 ? pixel.y : pixel.z;
}

// What a tensor of elements of `Bytes` bytes (4: float32, 2: float16, 1: 8 bit) has for one channel of a pixel, in its
// bits. `params`: three means and three scales.
template <int Bytes>
__device__ inline gpumap_u32 gpumap_element(const float4& pixel, gpumap_u32 channel, const float* params) {
  const float value = (gpumap_channel(pixel, channel) * (1.0f / 255.0f) - params[channel]) * params[3 + channel];
  return Bytes == 4 ? __float_as_uint(value) : Bytes == 2 ? gpumap_half(value) : gpumap_rounded(value * 255.0f);
}

// Into tensors of three planes. As gpumap_store_pixels().
template <int Bytes>
__device__ inline void gpumap_store_planar(const gpumap_view& out, gpumap_u32 x, gpumap_u32 y, gpumap_u32 count,
                                           const float4 (&pixel)[4], const float* params) {
  for (gpumap_u32 c = 0; c < 3; ++c) {
    gpumap_u32 element[4];
    for (gpumap_u32 i = 0; i < 4; ++i) element[i] = gpumap_element<Bytes>(pixel[i], c, params);
    const gpumap_u64 row = out.plane[c] + static_cast<gpumap_u64>(y) * out.stride[c];
    gpumap_store_run<4, Bytes>(row + static_cast<gpumap_u64>(Bytes) * x, element, count);
  }
}

// Into the row at address `row` of interleaved tensors. As gpumap_store_pixels().
template <int Bytes>
__device__ inline void gpumap_store_interleaved(gpumap_u64 row, gpumap_u32 x, gpumap_u32 count,
                                                const float4 (&pixel)[4], const float* params) {
  gpumap_u32 element[12];
  for (gpumap_u32 i = 0; i < 12; ++i) element[i] = gpumap_element<Bytes>(pixel[i / 3], i % 3, params);
  gpumap_store_run<12, Bytes>(row + 3ull * Bytes * x, element, 3 * count);
}

// Into the row at address `row` of RGB, GRAY8, RGBA or BGRA. As gpumap_store_pixels().
__device__ inline void gpumap_store_video(gpumap_u64 row, gpumap_u32 format, gpumap_u32 x, gpumap_u32 count,
                                          const float4 (&pixel)[4]) {
  if (format == GPUMAP_FORMAT_RGB) {
    gpumap_u32 element[12];
    for (gpumap_u32 i = 0; i < 12; ++i) element[i] = gpumap_rounded(gpumap_channel(pixel[i / 3], i % 3));
    gpumap_store_run<12, 1>(row + 3ull * x, element, 3 * count);
  } else if (format == GPUMAP_FORMAT_GRAY8) {
    gpumap_u32 element[4];
    for (gpumap_u32 i = 0; i < 4; ++i) {
      element[i] = gpumap_rounded(0.299f * pixel[i].x + 0.587f * pixel[i].y + 0.114f * pixel[i].z);
    }
    gpumap_store_run<4, 1>(row + x, element, count);
  } else {
    const gpumap_u32 red_shift = format == GPUMAP_FORMAT_RGBA ? 0 : 16;
    gpumap_u32 element[4];
    for (gpumap_u32 i = 0; i < 4; ++i) {
      element[i] = gpumap_rounded(pixel[i].x) << red_shift | gpumap_rounded(pixel[i].y) << 8 |
                   gpumap_rounded(pixel[i].z) << (16 - red_shift) | gpumap_rounded(pixel[i].w) << 24;
    }
    gpumap_store_run<4, 4>(row + 4ull * x, element, count);
  }
}

// `count` pixels, 1 to 4, of row y from x on, which is a multiple of 4; nothing beyond them is written. Red, green,
// blue and alpha are 0 to 255. `format` is RGBA, BGRA, RGB, GRAY8 or one of GPUMAP_FORMAT_RGB_*; any other writes
// nothing. `params`: three means and three scales, of which tensors are made; else unused.
__device__ inline void gpumap_store_pixels(const gpumap_view& out, gpumap_u32 format, gpumap_u32 x, gpumap_u32 y,
                                           gpumap_u32 count, const float4 (&pixel)[4], const float* params) {
  const gpumap_u64 row = out.plane[0] + static_cast<gpumap_u64>(y) * out.stride[0];
  switch (format) {
    case GPUMAP_FORMAT_RGB_F32_PLANAR:
      gpumap_store_planar<4>(out, x, y, count, pixel, params);
      break;
    case GPUMAP_FORMAT_RGB_F16_PLANAR:
      gpumap_store_planar<2>(out, x, y, count, pixel, params);
      break;
    case GPUMAP_FORMAT_RGB_U8_PLANAR:
      gpumap_store_planar<1>(out, x, y, count, pixel, params);
      break;
    case GPUMAP_FORMAT_RGB_F32:
      gpumap_store_interleaved<4>(row, x, count, pixel, params);
      break;
    case GPUMAP_FORMAT_RGB_F16:
      gpumap_store_interleaved<2>(row, x, count, pixel, params);
      break;
    case GPUMAP_FORMAT_RGB_U8:
      gpumap_store_interleaved<1>(row, x, count, pixel, params);
      break;
    case GPUMAP_FORMAT_RGB:
    case GPUMAP_FORMAT_RGBA:
    case GPUMAP_FORMAT_BGRA:
    case GPUMAP_FORMAT_GRAY8:
      gpumap_store_video(row, format, x, count, pixel);
      break;
    default:
      break;
  }
}

#endif
