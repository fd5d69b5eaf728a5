/* SPDX-License-Identifier: MIT
 * Given to NVRTC as <gpumap/words.h>: bytes and 16-bit numbers from and to any address, as whole words where that is
 * aligned. gpumap_words.glsl is its twin. Both begin with the words that are the same in the two languages by macros:
 * bayer.h, color.h, components.h, pixels.h, samples.h and taps.h are written in these.
 */
#ifndef GPUMAP_WORDS_H
#define GPUMAP_WORDS_H

#include <gpumap/kernel.h>

#define GPUMAP_FUNCTION __device__ inline
#define GPUMAP_FROM(type, name) const type& name     /* a parameter that is read */
#define GPUMAP_TO(type, name) type& name             /* one that is written */
#define GPUMAP_FOUR(type, name) const type(&name)[4] /* four that are read */
#define GPUMAP_TO_FOUR(type, name) type(&name)[4]    /* four that are written */
#define gpumap_f32x4 float4
#define gpumap_u32x4 uint4
#define gpumap_u16x4 ushort4
#define gpumap_make_f32x4 make_float4

// Whether `address` is a multiple of `bytes`, a power of two.
__device__ inline bool gpumap_aligned(gpumap_u64 address, gpumap_u32 bytes) {
  return (address & (bytes - 1)) == 0;
}

// The address of row y of a plane.
__device__ inline gpumap_u64 gpumap_row(const gpumap_view& view, gpumap_u32 plane, gpumap_u32 y) {
  return view.plane[plane] + static_cast<gpumap_u64>(y) * view.stride[plane];
}

// From an address that is a multiple of 16.
__device__ inline uint4 gpumap_load_u32x4(gpumap_u64 address) {
  return *reinterpret_cast<const uint4*>(address);
}

// `count` bytes, 0 to 4, from `address`, which may be any, the first one lowest; 0 for the rest. Touches no byte beyond
// them.
__device__ inline gpumap_u32 gpumap_load(gpumap_u64 address, gpumap_u32 count) {
  if (count == 4 && (address & 3) == 0) return *reinterpret_cast<const gpumap_u32*>(address);
  if (count == 2 && (address & 1) == 0) return *reinterpret_cast<const unsigned short*>(address);
  gpumap_u32 word = 0;
  for (gpumap_u32 i = 0; i < count; ++i) {
    word |= static_cast<gpumap_u32>(reinterpret_cast<const gpumap_u8*>(address)[i]) << (8 * i);
  }
  return word;
}

// `count` numbers of 16 bits, 0 to 4, from `address`, which may be any; 0 for the rest.
__device__ inline ushort4 gpumap_load_u16(gpumap_u64 address, gpumap_u32 count) {
  if (count == 4 && (address & 7) == 0) return *reinterpret_cast<const ushort4*>(address);
  ushort4 four = make_ushort4(0, 0, 0, 0);
  if (count > 0) four.x = static_cast<unsigned short>(gpumap_load(address, 2));
  if (count > 1) four.y = static_cast<unsigned short>(gpumap_load(address + 2, 2));
  if (count > 2) four.z = static_cast<unsigned short>(gpumap_load(address + 4, 2));
  if (count > 3) four.w = static_cast<unsigned short>(gpumap_load(address + 6, 2));
  return four;
}

// Byte `index` of `word`, 0 (the lowest) to 3.
__device__ inline gpumap_u32 gpumap_byte(gpumap_u32 word, gpumap_u32 index) {
  return (word >> (8 * index)) & 0xFF;
}

// The lowest `bytes` bytes of `word`, 1 to 4, to `address`, which may be any.
__device__ inline void gpumap_store(gpumap_u64 address, gpumap_u32 word, gpumap_u32 bytes) {
  if (bytes == 4 && (address & 3) == 0) {
    *reinterpret_cast<gpumap_u32*>(address) = word;
  } else if (bytes == 2 && (address & 1) == 0) {
    *reinterpret_cast<unsigned short*>(address) = static_cast<unsigned short>(word);
  } else {
    for (gpumap_u32 i = 0; i < bytes; ++i) {
      reinterpret_cast<gpumap_u8*>(address)[i] = static_cast<gpumap_u8>(word >> (8 * i));
    }
  }
}

// The first `count`, 0 to N, of elements of `Bytes` bytes each (1, 2 or 4; no bit above them set), one after the other
// from `address` on, which is a multiple of `Bytes`. N * Bytes is a multiple of 4.
template <int N, int Bytes>
__device__ inline void gpumap_store_run(gpumap_u64 address, const gpumap_u32 (&element)[N], gpumap_u32 count) {
  if (count == N && (address & 3) == 0) {
    constexpr int in_word = 4 / Bytes;
    constexpr int words = N / in_word;
    gpumap_u32 word[words];
    for (int w = 0; w < words; ++w) {
      word[w] = 0;
      for (int i = 0; i < in_word; ++i) word[w] |= element[w * in_word + i] << (8 * Bytes * i);
    }
    if (words % 4 == 0 && (address & 15) == 0) {
      for (int w = 0; w + 3 < words; w += 4) {
        *reinterpret_cast<uint4*>(address + 4 * w) = make_uint4(word[w], word[w + 1], word[w + 2], word[w + 3]);
      }
    } else if (words % 2 == 0 && (address & 7) == 0) {
      for (int w = 0; w + 1 < words; w += 2) {
        *reinterpret_cast<uint2*>(address + 4 * w) = make_uint2(word[w], word[w + 1]);
      }
    } else {
      for (int w = 0; w < words; ++w) *reinterpret_cast<gpumap_u32*>(address + 4 * w) = word[w];
    }
  } else {
    for (gpumap_u32 i = 0; i < N; ++i) {
      if (i < count) gpumap_store(address + Bytes * i, element[i], Bytes);
    }
  }
}

#endif
