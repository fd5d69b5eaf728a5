/* SPDX-License-Identifier: MIT
 * <gpumap/samples.h> in CUDA and <gpumap_samples.glsl> in GLSL, one text for both (see words.h): one interleaved sample
 * as a float in -1 to 1.
 */
#ifndef GPUMAP_SAMPLES_H
#define GPUMAP_SAMPLES_H

#ifdef __CUDACC__
#include <gpumap/sample_format.h>
#include <gpumap/words.h>
#define gpumap_word_8(address) gpumap_u32(*reinterpret_cast<const gpumap_u8*>(address))
#define gpumap_word_16(address) gpumap_u32(*reinterpret_cast<const unsigned short*>(address))
#define gpumap_word_32(address) (*reinterpret_cast<const gpumap_u32*>(address))
#define gpumap_as_float(bits) __uint_as_float(bits)
#else
#include <gpumap_sample_format.glsl>
#include <gpumap_words.glsl>
#define gpumap_word_8(address) load_u8(address)
#define gpumap_word_16(address) load_u16(address)
#define gpumap_word_32(address) load_u32(address)
#define gpumap_as_float(bits) uintBitsToFloat(bits)
#endif

// Bits of one sample of one channel: 8, 12, 16, 24, 32 or 64. `format` is one of samples, of
// enum gpumap_format or of sample_format.h.
GPUMAP_FUNCTION gpumap_u32 gpumap_sample_bits(gpumap_u32 format) {
  switch (format) {
    case GPUMAP_FORMAT_U8:
    case GPUMAP_FORMAT_U8_ZERO_128:
    case GPUMAP_FORMAT_S8:
      return 8u;
    case GPUMAP_FORMAT_S12:
      return 12u;
    case GPUMAP_FORMAT_S16:
    case GPUMAP_FORMAT_S16_BE:
    case GPUMAP_FORMAT_U16:
    case GPUMAP_FORMAT_U16_BE:
      return 16u;
    case GPUMAP_FORMAT_S24:
    case GPUMAP_FORMAT_S24_BE:
      return 24u;
    case GPUMAP_FORMAT_F64:
    case GPUMAP_FORMAT_F64_BE:
      return 64u;
    default:
      return 32u;
  }
}

// Whole samples, of all channels together, in `bytes` bytes.
GPUMAP_FUNCTION gpumap_u64 gpumap_sample_count(gpumap_u32 format, gpumap_u64 bytes) {
  return bytes * gpumap_u64(8) / gpumap_u64(gpumap_sample_bits(format));
}

// As gpumap_sample() is to take samples of `format`: U8 `around128`, or around 127.5.
GPUMAP_FUNCTION gpumap_u32 gpumap_sample_format(gpumap_u32 format, bool around128) {
  return format == GPUMAP_FORMAT_U8 && around128 ? gpumap_u32(GPUMAP_FORMAT_U8_ZERO_128) : format;
}

// The other order of its bytes.
GPUMAP_FUNCTION gpumap_u32 gpumap_swapped(gpumap_u32 word) {
  return word >> 24 | (word >> 8 & 0xFF00u) | (word & 0xFF00u) << 8 | word << 24;
}

// The nearest float to a double of these bits; what is too small for a normal one is 0.
GPUMAP_FUNCTION float gpumap_narrowed(gpumap_u32 high, gpumap_u32 low) {
  const gpumap_u32 sign = high & 0x80000000u, exponent = high >> 20 & 0x7FFu;
  const gpumap_u32 fraction = (high & 0xFFFFFu) << 3 | low >> 29, rest = low & 0x1FFFFFFFu;
  if (exponent == 0x7FFu) {
    const bool is_nan = (fraction | rest) != 0u;
    return gpumap_as_float(sign | 0x7F800000u | (is_nan ? 0x400000u : 0u));
  }
  if (exponent > 1150u) return gpumap_as_float(sign | 0x7F800000u);
  if (exponent < 897u) return gpumap_as_float(sign);
  const gpumap_u32 bits = (exponent - 896u) << 23 | fraction;
  const bool up = rest > 0x10000000u || (rest == 0x10000000u && (bits & 1u) != 0u);
  return gpumap_as_float(sign | (up ? bits + 1u : bits));
}

// A sample of whole numbers as one of 32 bits with a sign: its bits are the highest ones.
GPUMAP_FUNCTION gpumap_i32 gpumap_sample_word(gpumap_u64 address, gpumap_u32 format, gpumap_u64 index) {
  const gpumap_u32 middle = 0x80000000u;
  switch (format) {
    case GPUMAP_FORMAT_U8_ZERO_128:
      return gpumap_i32(gpumap_word_8(address + index) << 24 ^ middle);
    case GPUMAP_FORMAT_S8:
      return gpumap_i32(gpumap_word_8(address + index) << 24);
    case GPUMAP_FORMAT_S12: {
      const gpumap_u64 at = address + index + index / gpumap_u64(2);
      const gpumap_u32 two = gpumap_word_8(at) | gpumap_word_8(at + gpumap_u64(1)) << 8;
      return gpumap_i32(((index & gpumap_u64(1)) != gpumap_u64(0) ? two >> 4 : two) << 20);
    }
    case GPUMAP_FORMAT_S16:
      return gpumap_i32(gpumap_word_16(address + gpumap_u64(2) * index) << 16);
    case GPUMAP_FORMAT_S16_BE:
      return gpumap_i32(gpumap_swapped(gpumap_word_16(address + gpumap_u64(2) * index)));
    case GPUMAP_FORMAT_U16:
      return gpumap_i32(gpumap_word_16(address + gpumap_u64(2) * index) << 16 ^ middle);
    case GPUMAP_FORMAT_U16_BE:
      return gpumap_i32(gpumap_swapped(gpumap_word_16(address + gpumap_u64(2) * index)) ^ middle);
    case GPUMAP_FORMAT_S24:
    case GPUMAP_FORMAT_S24_BE: {
      const gpumap_u64 at = address + gpumap_u64(3) * index;
      const gpumap_u32 first = gpumap_word_8(at), last = gpumap_word_8(at + gpumap_u64(2));
      const bool is_first_low = format == GPUMAP_FORMAT_S24;
      return gpumap_i32((is_first_low ? last : first) << 24 | gpumap_word_8(at + gpumap_u64(1)) << 16 |
                        (is_first_low ? first : last) << 8);
    }
    case GPUMAP_FORMAT_S24_32:
      return gpumap_i32(gpumap_word_32(address + gpumap_u64(4) * index) << 8);
    case GPUMAP_FORMAT_S24_32_BE:
      return gpumap_i32(gpumap_swapped(gpumap_word_32(address + gpumap_u64(4) * index)) << 8);
    case GPUMAP_FORMAT_S32:
      return gpumap_i32(gpumap_word_32(address + gpumap_u64(4) * index));
    case GPUMAP_FORMAT_S32_BE:
      return gpumap_i32(gpumap_swapped(gpumap_word_32(address + gpumap_u64(4) * index)));
    case GPUMAP_FORMAT_U32:
      return gpumap_i32(gpumap_word_32(address + gpumap_u64(4) * index) ^ middle);
    default:
      return gpumap_i32(gpumap_swapped(gpumap_word_32(address + gpumap_u64(4) * index)) ^ middle);
  }
}

// Sample `index` of those from `address` on (plane[0] of the input), of all channels in turn, as a float; F32 as it is.
// `address` is a multiple of a sample's bytes; that of F64 of 4, that of S12 and S24 any.
GPUMAP_FUNCTION float gpumap_sample(gpumap_u64 address, gpumap_u32 format, gpumap_u64 index) {
  switch (format) {
    case GPUMAP_FORMAT_U8:
      return (float(gpumap_word_8(address + index)) - 127.5f) / 127.5f;
    case GPUMAP_FORMAT_F32:
      return gpumap_as_float(gpumap_word_32(address + gpumap_u64(4) * index));
    case GPUMAP_FORMAT_F32_BE:
      return gpumap_as_float(gpumap_swapped(gpumap_word_32(address + gpumap_u64(4) * index)));
    case GPUMAP_FORMAT_F64: {
      const gpumap_u64 at = address + gpumap_u64(8) * index;
      return gpumap_narrowed(gpumap_word_32(at + gpumap_u64(4)), gpumap_word_32(at));
    }
    case GPUMAP_FORMAT_F64_BE: {
      const gpumap_u64 at = address + gpumap_u64(8) * index;
      return gpumap_narrowed(gpumap_swapped(gpumap_word_32(at)), gpumap_swapped(gpumap_word_32(at + gpumap_u64(4))));
    }
    default:
      return float(gpumap_sample_word(address, format, index)) / 2147483648.0f;
  }
}

#endif
