// SPDX-License-Identifier: MIT
// <gpumap_samples.glsl>: one interleaved sample as a float in -1 to 1. gpumap/samples.h is its twin.
#ifndef GPUMAP_SAMPLES_GLSL
#define GPUMAP_SAMPLES_GLSL

#include <gpumap.glsl>

// Bytes of one sample of one channel: 1, 2 or 4. `format` is GPUMAP_FORMAT_U8, U8_ZERO_128, S8, S16 or F32.
uint gpumap_sample_bytes(uint format) {
  return format == GPUMAP_FORMAT_F32 ? 4u : format == GPUMAP_FORMAT_S16 ? 2u : 1u;
}

// As gpumap_sample() is to take samples of `format`: U8 `around128`, or around 127.5.
uint gpumap_sample_format(uint format, bool around128) {
  return format == GPUMAP_FORMAT_U8 && around128 ? GPUMAP_FORMAT_U8_ZERO_128 : format;
}

// Sample `index` of those from `address` on (frame.in_view.plane[0]), of all channels in turn, as a float; F32 as it is.
float gpumap_sample(uint64_t address, uint format, uint64_t index) {
  switch (format) {
    case GPUMAP_FORMAT_U8:
      return (float(load_u8(address + index)) - 127.5) / 127.5;
    case GPUMAP_FORMAT_U8_ZERO_128:
      return (float(load_u8(address + index)) - 128.0) / 128.0;
    case GPUMAP_FORMAT_S8:
      return float(bitfieldExtract(int(load_u8(address + index)), 0, 8)) / 128.0;
    case GPUMAP_FORMAT_S16:
      return float(bitfieldExtract(int(load_u16(address + 2ul * index)), 0, 16)) / 32768.0;
    default:
      return load_f32(address + 4ul * index);
  }
}

#endif
