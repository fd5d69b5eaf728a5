// SPDX-License-Identifier: MIT
// Video to RGBA8 or planar RGB float32. A thread makes 4 neighbouring pixels of a row: whole words are loaded and
// stored where addresses allow it, bytes elsewhere. Chroma is replicated. Right for any grid, size and stride.
#include <gpumap/kernel.h>

// Up to 4 bytes from `address`, the first one lowest; touches no byte beyond `count`.
__device__ gpumap_u32 load(gpumap_u64 address, gpumap_u32 count) {
  if (count == 4 && (address & 3) == 0) return *reinterpret_cast<const gpumap_u32*>(address);
  if (count == 2 && (address & 1) == 0) return *reinterpret_cast<const unsigned short*>(address);
  gpumap_u32 word = 0;
  for (gpumap_u32 i = 0; i < count; ++i) {
    word |= static_cast<gpumap_u32>(reinterpret_cast<const gpumap_u8*>(address)[i]) << (8 * i);
  }
  return word;
}

__device__ void store(gpumap_u64 address, gpumap_u32 word) {
  if ((address & 3) == 0) {
    *reinterpret_cast<gpumap_u32*>(address) = word;
  } else {
    for (gpumap_u32 i = 0; i < 4; ++i) {
      reinterpret_cast<gpumap_u8*>(address)[i] = static_cast<gpumap_u8>(word >> (8 * i));
    }
  }
}

__device__ void store4(gpumap_u64 address, const gpumap_u32 (&word)[4], gpumap_u32 count) {
  if (count == 4 && (address & 15) == 0) {
    *reinterpret_cast<uint4*>(address) = make_uint4(word[0], word[1], word[2], word[3]);
  } else {
    for (gpumap_u32 i = 0; i < 4; ++i) {
      if (i < count) store(address + 4 * i, word[i]);
    }
  }
}

__device__ gpumap_u32 byte_of(gpumap_u32 word, gpumap_u32 index) { return (word >> (8 * index)) & 0xFF; }

// `count` pixels of row y from x on, each as three 8-bit components (first one lowest) and alpha in the top byte.
__device__ void load_pixels(const gpumap_view& in, gpumap_u32 x, gpumap_u32 y, gpumap_u32 count,
                            gpumap_u32 (&pixel)[4]) {
  const gpumap_u32 pairs = (count + 1) / 2;
  const gpumap_u64 row = in.plane[0] + static_cast<gpumap_u64>(y) * in.stride[0];
  const gpumap_u64 chroma_y = y / 2;
  switch (in.format) {
    case GPUMAP_FORMAT_NV12: {
      const gpumap_u32 luma = load(row + x, count);
      const gpumap_u32 chroma = load(in.plane[1] + chroma_y * in.stride[1] + x, 2 * pairs);
      for (gpumap_u32 i = 0; i < 4; ++i) {
        pixel[i] = 0xFF000000u | byte_of(luma, i) | ((chroma >> (16 * (i / 2))) & 0xFFFF) << 8;
      }
      break;
    }
    case GPUMAP_FORMAT_I420: {
      const gpumap_u32 luma = load(row + x, count);
      const gpumap_u32 cb = load(in.plane[1] + chroma_y * in.stride[1] + x / 2, pairs);
      const gpumap_u32 cr = load(in.plane[2] + chroma_y * in.stride[2] + x / 2, pairs);
      for (gpumap_u32 i = 0; i < 4; ++i) {
        pixel[i] = 0xFF000000u | byte_of(luma, i) | byte_of(cb, i / 2) << 8 | byte_of(cr, i / 2) << 16;
      }
      break;
    }
    case GPUMAP_FORMAT_YUY2:
    case GPUMAP_FORMAT_UYVY: {
      // Two pixels in four bytes: Y0 Cb Y1 Cr, or Cb Y0 Cr Y1.
      const gpumap_u32 luma_at = in.format == GPUMAP_FORMAT_YUY2 ? 0 : 1;
      const gpumap_u32 word[2] = {load(row + 2ull * x, 4), pairs > 1 ? load(row + 2ull * x + 4, 4) : 0};
      for (gpumap_u32 i = 0; i < 4; ++i) {
        const gpumap_u32 pair = word[i / 2];
        pixel[i] = 0xFF000000u | byte_of(pair, luma_at + 2 * (i % 2)) | byte_of(pair, 1 - luma_at) << 8 |
                   byte_of(pair, 3 - luma_at) << 16;
      }
      break;
    }
    case GPUMAP_FORMAT_RGB:
    case GPUMAP_FORMAT_BGR: {
      const gpumap_u64 from = row + 3ull * x;
      if (count == 4 && (from & 3) == 0) {
        const gpumap_u32 a = load(from, 4), b = load(from + 4, 4), c = load(from + 8, 4);
        pixel[0] = a;
        pixel[1] = a >> 24 | b << 8;
        pixel[2] = b >> 16 | c << 16;
        pixel[3] = c >> 8;
      } else {
        for (gpumap_u32 i = 0; i < 4; ++i) pixel[i] = i < count ? load(from + 3 * i, 3) : 0;
      }
      for (gpumap_u32 i = 0; i < 4; ++i) pixel[i] |= 0xFF000000u;
      break;
    }
    default: {
      const gpumap_u64 from = row + 4ull * x;
      if (count == 4 && (from & 15) == 0) {
        const uint4 four = *reinterpret_cast<const uint4*>(from);
        pixel[0] = four.x, pixel[1] = four.y, pixel[2] = four.z, pixel[3] = four.w;
      } else {
        for (gpumap_u32 i = 0; i < 4; ++i) pixel[i] = i < count ? load(from + 4 * i, 4) : 0;
      }
    }
  }
  if (in.format == GPUMAP_FORMAT_BGR || in.format == GPUMAP_FORMAT_BGRA) {
    for (gpumap_u32 i = 0; i < 4; ++i) {
      pixel[i] = (pixel[i] & 0xFF00FF00u) | byte_of(pixel[i], 2) | byte_of(pixel[i], 0) << 16;
    }
  }
}

// One of red, green and blue, 0 to 255.
__device__ float colour_of(const gpumap_color& color, gpumap_u32 pixel, gpumap_u32 which) {
  const float sum = color.matrix[3 * which] * (static_cast<float>(byte_of(pixel, 0)) - color.offset[0]) +
                    color.matrix[3 * which + 1] * (static_cast<float>(byte_of(pixel, 1)) - color.offset[1]) +
                    color.matrix[3 * which + 2] * (static_cast<float>(byte_of(pixel, 2)) - color.offset[2]);
  return fminf(fmaxf(sum, 0.0f), 255.0f);
}

__device__ void convert_pixels(const gpumap_frame& frame, gpumap_u32 x, gpumap_u32 y, gpumap_u32 count) {
  gpumap_u32 pixel[4];
  gpumap_u32 word[4];
  load_pixels(frame.in, x, y, count, pixel);
  if (frame.out.format == GPUMAP_FORMAT_RGBA) {
    for (gpumap_u32 i = 0; i < 4; ++i) {
      word[i] = pixel[i] & 0xFF000000u;
      for (gpumap_u32 c = 0; c < 3; ++c) {
        word[i] |= static_cast<gpumap_u32>(colour_of(frame.color, pixel[i], c) + 0.5f) << (8 * c);
      }
    }
    store4(frame.out.plane[0] + static_cast<gpumap_u64>(y) * frame.out.stride[0] + 4ull * x, word, count);
  } else if (frame.out.format == GPUMAP_FORMAT_RGB_F32_PLANAR) {
    for (gpumap_u32 c = 0; c < 3; ++c) {
      for (gpumap_u32 i = 0; i < 4; ++i) {
        const float value = (colour_of(frame.color, pixel[i], c) / 255.0f - frame.params[c]) * frame.params[3 + c];
        word[i] = __float_as_uint(value);
      }
      store4(frame.out.plane[c] + static_cast<gpumap_u64>(y) * frame.out.stride[c] + 4ull * x, word, count);
    }
  }
}

extern "C" __global__ void convert(gpumap_frame frame) {
  if (frame.in.format < GPUMAP_FORMAT_NV12 || frame.in.format > GPUMAP_FORMAT_BGRA) return;
  const gpumap_u32 width = min(frame.in.width, frame.out.width);
  const gpumap_u32 height = min(frame.in.height, frame.out.height);
  const gpumap_u32 quads = width / 4 + (width % 4 != 0);
  for (gpumap_u32 y = blockIdx.y * blockDim.y + threadIdx.y; y < height; y += gridDim.y * blockDim.y) {
    for (gpumap_u32 q = blockIdx.x * blockDim.x + threadIdx.x; q < quads; q += gridDim.x * blockDim.x) {
      convert_pixels(frame, 4 * q, y, min(4u, width - 4 * q));
    }
  }
}
