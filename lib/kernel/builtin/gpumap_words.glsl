// SPDX-License-Identifier: MIT
// <gpumap_words.glsl>: bytes and 16-bit numbers from and to any address, as whole words where that is aligned.
// gpumap/words.h is its twin. Both begin with the words that are the same in the two languages by macros:
// bayer.h, color.h, components.h, pixels.h, samples.h and taps.h are written in these.
#ifndef GPUMAP_WORDS_GLSL
#define GPUMAP_WORDS_GLSL

#include <gpumap.glsl>

#define GPUMAP_FUNCTION
#define GPUMAP_FROM(type, name) type name
#define GPUMAP_TO(type, name) out type name
#define GPUMAP_FOUR(type, name) type name[4]
#define GPUMAP_TO_FOUR(type, name) out type name[4]
#define gpumap_i32 int
#define gpumap_u32 uint
#define gpumap_u64 uint64_t
#define gpumap_f32x4 vec4
#define gpumap_u32x4 uvec4
#define gpumap_u16x4 uvec4
#define gpumap_make_f32x4 vec4
#define gpumap_load_u32x4 load_u32x4

// The address of row y of a plane.
uint64_t gpumap_row(gpumap_view view, uint plane, uint y) {
  return view.plane[plane] + uint64_t(y) * uint64_t(view.stride[plane]);
}

// `count` bytes, 0 to 4, from `address`, which may be any, the first one lowest; 0 for the rest. Touches no byte beyond
// them.
uint gpumap_load(uint64_t address, uint count) {
  if (count == 4u && gpumap_aligned(address, 4u)) return load_u32(address);
  if (count == 2u && gpumap_aligned(address, 2u)) return load_u16(address);
  uint word = 0u;
  for (uint i = 0u; i < count; ++i) word |= load_u8(address + uint64_t(i)) << (8u * i);
  return word;
}

// `count` numbers of 16 bits, 0 to 4, from `address`, which may be any; 0 for the rest.
uvec4 gpumap_load_u16(uint64_t address, uint count) {
  if (count == 4u && gpumap_aligned(address, 4u)) {
    const uint low = load_u32(address), high = load_u32(address + 4ul);
    return uvec4(low & 0xFFFFu, low >> 16, high & 0xFFFFu, high >> 16);
  }
  uvec4 four = uvec4(0u);
  for (uint i = 0u; i < count; ++i) four[i] = gpumap_load(address + uint64_t(2u * i), 2u);
  return four;
}

// Byte `index` of `word`, 0 (the lowest) to 3.
uint gpumap_byte(uint word, uint index) { return (word >> (8u * index)) & 0xFFu; }

// The lowest `bytes` bytes of `word`, 1 to 4, to `address`, which may be any.
void gpumap_store(uint64_t address, uint word, uint bytes) {
  if (bytes == 4u && gpumap_aligned(address, 4u)) {
    store_u32(address, word);
  } else if (bytes == 2u && gpumap_aligned(address, 2u)) {
    store_u16(address, word & 0xFFFFu);
  } else {
    for (uint i = 0u; i < bytes; ++i) store_u8(address + uint64_t(i), (word >> (8u * i)) & 0xFFu);
  }
}

// Four elements of `bytes` bytes each (1, 2 or 4; no bit above them set) as the words that they fill, so many.
uvec4 gpumap_packed(uvec4 element, uint bytes) {
  if (bytes == 4u) return element;
  if (bytes == 2u) return uvec4(element.x | element.y << 16, element.z | element.w << 16, 0u, 0u);
  return uvec4(element.x | element.y << 8 | element.z << 16 | element.w << 24, 0u, 0u, 0u);
}

// The first `count`, 0 to 4, of elements of `bytes` bytes each (1, 2 or 4; no bit above them set), one after the other
// from `address` on, which is a multiple of `bytes`.
void gpumap_store_four(uint64_t address, uvec4 element, uint bytes, uint count) {
  const uvec4 word = gpumap_packed(element, bytes);
  if (count == 4u && bytes == 4u && gpumap_aligned(address, 16u)) {
    store_u32x4(address, word);
  } else if (count == 4u && gpumap_aligned(address, 4u)) {
    for (uint w = 0u; w < bytes; ++w) store_u32(address + uint64_t(4u * w), word[w]);
  } else {
    for (uint i = 0u; i < count; ++i) gpumap_store(address + uint64_t(bytes * i), element[i], bytes);
  }
}

// The first `count` of 12 elements, `a`, `b` and `c`, likewise.
void gpumap_store_twelve(uint64_t address, uvec4 a, uvec4 b, uvec4 c, uint bytes, uint count) {
  gpumap_store_four(address, a, bytes, min(count, 4u));
  if (count > 4u) gpumap_store_four(address + uint64_t(4u * bytes), b, bytes, min(count - 4u, 4u));
  if (count > 8u) gpumap_store_four(address + uint64_t(8u * bytes), c, bytes, count - 8u);
}

#endif
