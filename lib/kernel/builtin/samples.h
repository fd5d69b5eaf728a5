/* SPDX-License-Identifier: MIT
 * Given to NVRTC as <gpumap/samples.h>: one interleaved sample as a float in -1 to 1. gpumap_samples.glsl is its twin.
 */
#ifndef GPUMAP_SAMPLES_H
#define GPUMAP_SAMPLES_H

#include <gpumap/kernel.h>

// Bytes of one sample of one channel: 1, 2 or 4. `format` is GPUMAP_FORMAT_U8, U8_ZERO_128, S8, S16 or F32.
__device__ inline gpumap_u32 gpumap_sample_bytes(gpumap_u32 format) {
  return format == GPUMAP_FORMAT_F32 ? 4 : format == GPUMAP_FORMAT_S16 ? 2 : 1;
}

// As gpumap_sample() is to take samples of `format`: U8 `around128`, or around 127.5.
__device__ inline gpumap_u32 gpumap_sample_format(gpumap_u32 format, bool around128) {
  return format == GPUMAP_FORMAT_U8 && around128 ? gpumap_u32{GPUMAP_FORMAT_U8_ZERO_128} : format;
}

// U8 as GStreamer's audio has it: 128 is 0.
struct gpumap_u8_zero_128 {
  gpumap_u8 value;
};

// A sample of its type as a float: U8 about 127.5, or 128, the others about 0.
__device__ inline float gpumap_scaled(gpumap_u8 value) {
  return (static_cast<float>(value) - 127.5f) / 127.5f;
}
__device__ inline float gpumap_scaled(gpumap_u8_zero_128 sample) {
  return (static_cast<float>(sample.value) - 128.0f) / 128.0f;
}
__device__ inline float gpumap_scaled(signed char value) {
  return static_cast<float>(value) / 128.0f;
}
__device__ inline float gpumap_scaled(short value) {
  return static_cast<float>(value) / 32768.0f;
}
__device__ inline float gpumap_scaled(float value) {
  return value;
}

// Sample `index` of those from `address` on (frame.in.plane[0]), of all channels in turn, as a float; F32 as it is.
__device__ inline float gpumap_sample(gpumap_u64 address, gpumap_u32 format, gpumap_u64 index) {
  switch (format) {
    case GPUMAP_FORMAT_U8:
      return gpumap_scaled(reinterpret_cast<const gpumap_u8*>(address)[index]);
    case GPUMAP_FORMAT_U8_ZERO_128:
      return gpumap_scaled(reinterpret_cast<const gpumap_u8_zero_128*>(address)[index]);
    case GPUMAP_FORMAT_S8:
      return gpumap_scaled(reinterpret_cast<const signed char*>(address)[index]);
    case GPUMAP_FORMAT_S16:
      return gpumap_scaled(reinterpret_cast<const short*>(address)[index]);
    default:
      return gpumap_scaled(reinterpret_cast<const float*>(address)[index]);
  }
}

#endif
