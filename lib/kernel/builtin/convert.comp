// SPDX-License-Identifier: MIT
// Video to RGBA8 or planar RGB float32. A thread makes 4 neighbouring pixels of a row: whole words are loaded and
// stored where addresses allow it, bytes elsewhere. Chroma is replicated. Right for any grid, size and stride.
#version 460
#include <gpumap.glsl>

// Up to 4 bytes from `address`, the first one lowest; touches no byte beyond `count`.
uint load(uint64_t address, uint count) {
  if (count == 4u && gpumap_aligned(address, 4u)) return load_u32(address);
  if (count == 2u && gpumap_aligned(address, 2u)) return load_u16(address);
  uint word = 0u;
  for (uint i = 0u; i < count; ++i) word |= load_u8(address + uint64_t(i)) << (8u * i);
  return word;
}

void store(uint64_t address, uint word) {
  if (gpumap_aligned(address, 4u)) {
    store_u32(address, word);
  } else {
    for (uint i = 0u; i < 4u; ++i) store_u8(address + uint64_t(i), (word >> (8u * i)) & 0xFFu);
  }
}

void store4(uint64_t address, uvec4 word, uint count) {
  if (count == 4u && gpumap_aligned(address, 16u)) {
    store_u32x4(address, word);
  } else {
    for (uint i = 0u; i < count; ++i) store(address + uint64_t(4u * i), word[i]);
  }
}

uint byte_of(uint word, uint index) { return (word >> (8u * index)) & 0xFFu; }

// `count` pixels of row y from x on, each as three 8-bit components (first one lowest) and alpha in the top byte.
uvec4 load_pixels(uint x, uint y, uint count) {
  const uint format = frame.in_view.format;
  const uint pairs = (count + 1u) / 2u;
  const uint64_t row = frame.in_view.plane[0] + uint64_t(y) * uint64_t(frame.in_view.stride[0]);
  const uint64_t row1 = frame.in_view.plane[1] + uint64_t(y / 2u) * uint64_t(frame.in_view.stride[1]);
  uvec4 pixel = uvec4(0u);
  switch (format) {
    case GPUMAP_FORMAT_NV12: {
      const uint luma = load(row + uint64_t(x), count);
      const uint chroma = load(row1 + uint64_t(x), 2u * pairs);
      for (uint i = 0u; i < 4u; ++i) {
        pixel[i] = 0xFF000000u | byte_of(luma, i) | ((chroma >> (16u * (i / 2u))) & 0xFFFFu) << 8;
      }
      break;
    }
    case GPUMAP_FORMAT_I420: {
      const uint64_t row2 = frame.in_view.plane[2] + uint64_t(y / 2u) * uint64_t(frame.in_view.stride[2]);
      const uint luma = load(row + uint64_t(x), count);
      const uint cb = load(row1 + uint64_t(x / 2u), pairs);
      const uint cr = load(row2 + uint64_t(x / 2u), pairs);
      for (uint i = 0u; i < 4u; ++i) {
        pixel[i] = 0xFF000000u | byte_of(luma, i) | byte_of(cb, i / 2u) << 8 | byte_of(cr, i / 2u) << 16;
      }
      break;
    }
    case GPUMAP_FORMAT_YUY2:
    case GPUMAP_FORMAT_UYVY: {
      // Two pixels in four bytes: Y0 Cb Y1 Cr, or Cb Y0 Cr Y1.
      const uint luma_at = format == GPUMAP_FORMAT_YUY2 ? 0u : 1u;
      const uint64_t from = row + 2ul * uint64_t(x);
      const uvec2 word = uvec2(load(from, 4u), pairs > 1u ? load(from + 4ul, 4u) : 0u);
      for (uint i = 0u; i < 4u; ++i) {
        const uint pair = word[i / 2u];
        pixel[i] = 0xFF000000u | byte_of(pair, luma_at + 2u * (i % 2u)) | byte_of(pair, 1u - luma_at) << 8 |
                   byte_of(pair, 3u - luma_at) << 16;
      }
      break;
    }
    case GPUMAP_FORMAT_RGB:
    case GPUMAP_FORMAT_BGR: {
      const uint64_t from = row + 3ul * uint64_t(x);
      if (count == 4u && gpumap_aligned(from, 4u)) {
        const uint a = load_u32(from), b = load_u32(from + 4ul), c = load_u32(from + 8ul);
        pixel = uvec4(a, a >> 24 | b << 8, b >> 16 | c << 16, c >> 8);
      } else {
        for (uint i = 0u; i < count; ++i) pixel[i] = load(from + uint64_t(3u * i), 3u);
      }
      pixel |= uvec4(0xFF000000u);
      break;
    }
    default: {
      const uint64_t from = row + 4ul * uint64_t(x);
      if (count == 4u && gpumap_aligned(from, 16u)) {
        pixel = load_u32x4(from);
      } else {
        for (uint i = 0u; i < count; ++i) pixel[i] = load(from + uint64_t(4u * i), 4u);
      }
    }
  }
  if (format == GPUMAP_FORMAT_BGR || format == GPUMAP_FORMAT_BGRA) {
    pixel = (pixel & uvec4(0xFF00FF00u)) | (pixel >> 16 & uvec4(0xFFu)) | (pixel & uvec4(0xFFu)) << 16;
  }
  return pixel;
}

// One of red, green and blue, 0 to 255.
float colour_of(gpumap_color color, uint pixel, uint which) {
  const float sum = color.matrix[3u * which] * (float(byte_of(pixel, 0u)) - color.offset[0]) +
                    color.matrix[3u * which + 1u] * (float(byte_of(pixel, 1u)) - color.offset[1]) +
                    color.matrix[3u * which + 2u] * (float(byte_of(pixel, 2u)) - color.offset[2]);
  return clamp(sum, 0.0, 255.0);
}

void convert_pixels(uint x, uint y, uint count) {
  const gpumap_color color = frame.color;
  const uint format = frame.out_view.format;
  const uvec4 pixel = load_pixels(x, y, count);
  uvec4 word;
  if (format == GPUMAP_FORMAT_RGBA) {
    for (uint i = 0u; i < 4u; ++i) {
      word[i] = pixel[i] & 0xFF000000u;
      for (uint c = 0u; c < 3u; ++c) word[i] |= uint(colour_of(color, pixel[i], c) + 0.5) << (8u * c);
    }
    const uint64_t row = frame.out_view.plane[0] + uint64_t(y) * uint64_t(frame.out_view.stride[0]);
    store4(row + 4ul * uint64_t(x), word, count);
  } else if (format == GPUMAP_FORMAT_RGB_F32_PLANAR) {
    for (uint c = 0u; c < 3u; ++c) {
      for (uint i = 0u; i < 4u; ++i) {
        const float value = (colour_of(color, pixel[i], c) / 255.0 - frame.params[c]) * frame.params[3u + c];
        word[i] = floatBitsToUint(value);
      }
      const uint64_t row = frame.out_view.plane[c] + uint64_t(y) * uint64_t(frame.out_view.stride[c]);
      store4(row + 4ul * uint64_t(x), word, count);
    }
  }
}

void main() {
  if (frame.in_view.format < GPUMAP_FORMAT_NV12 || frame.in_view.format > GPUMAP_FORMAT_BGRA) return;
  const uint width = min(frame.in_view.width, frame.out_view.width);
  const uint height = min(frame.in_view.height, frame.out_view.height);
  const uint quads = width / 4u + uint(width % 4u != 0u);
  const uvec2 step = gl_NumWorkGroups.xy * gl_WorkGroupSize.xy;
  for (uint y = gl_GlobalInvocationID.y; y < height; y += step.y) {
    for (uint q = gl_GlobalInvocationID.x; q < quads; q += step.x) {
      convert_pixels(4u * q, y, min(4u, width - 4u * q));
    }
  }
}
