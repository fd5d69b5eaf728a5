// SPDX-License-Identifier: MIT
//
// The kernel contract for compute shaders: the twin of <gpumap/kernel.h>, with the same layout byte for byte.
//
//   #version 460
//   #include <gpumap.glsl>
//   void main() { if (gl_GlobalInvocationID.x < frame.in_view.width) ... }
//
// A shader has no descriptors. Everything is reached through 64-bit addresses, as in CUDA: `frame` is read through
// the one push constant, planes through load_* and store_*. `in` and `out` are keywords of GLSL, hence in_view and
// out_view. Name nothing else `frame`.
#ifndef GPUMAP_GLSL
#define GPUMAP_GLSL

#extension GL_EXT_buffer_reference : require
#extension GL_EXT_scalar_block_layout : require
#extension GL_EXT_shader_explicit_arithmetic_types_int8 : require
#extension GL_EXT_shader_explicit_arithmetic_types_int16 : require
#extension GL_EXT_shader_explicit_arithmetic_types_int64 : require
#extension GL_EXT_shader_atomic_int64 : enable
#extension GL_EXT_shader_atomic_float : enable

// The launch chooses the workgroup size. A shader that needs a size of its own defines GPUMAP_OWN_WORKGROUP_SIZE
// before the include and writes its own layout(local_size_x = ...) in.
#ifndef GPUMAP_OWN_WORKGROUP_SIZE
layout(local_size_x_id = 0, local_size_y_id = 1, local_size_z_id = 2) in;
#endif

const uint GPUMAP_MAX_PLANES = 4;
const uint GPUMAP_MAX_PARAMS = 64;
const uint GPUMAP_RESULT_WORDS = 32;
const uint GPUMAP_MAX_TABLES = 8;
const uint GPUMAP_MAX_HISTORY = 8;
const uint GPUMAP_MAX_TENSORS = 8;
const uint GPUMAP_MAX_TENSOR_DIMS = 8;
const uint GPUMAP_MAX_RESULT_WORDS = 4096;

const uint GPUMAP_FORMAT_BYTES = 0;
const uint GPUMAP_FORMAT_NV12 = 1;
const uint GPUMAP_FORMAT_I420 = 2;
const uint GPUMAP_FORMAT_YUY2 = 3;
const uint GPUMAP_FORMAT_UYVY = 4;
const uint GPUMAP_FORMAT_RGB = 5;
const uint GPUMAP_FORMAT_BGR = 6;
const uint GPUMAP_FORMAT_RGBA = 7;
const uint GPUMAP_FORMAT_BGRA = 8;
const uint GPUMAP_FORMAT_P010 = 9;
const uint GPUMAP_FORMAT_V210 = 10;
const uint GPUMAP_FORMAT_Y210 = 11;
const uint GPUMAP_FORMAT_GRAY8 = 12;
const uint GPUMAP_FORMAT_GRAY16 = 13;
const uint GPUMAP_FORMAT_BAYER8_BGGR = 14;
const uint GPUMAP_FORMAT_BAYER8_GBRG = 15;
const uint GPUMAP_FORMAT_BAYER8_GRBG = 16;
const uint GPUMAP_FORMAT_BAYER8_RGGB = 17;
const uint GPUMAP_FORMAT_BAYER16_BGGR = 18;
const uint GPUMAP_FORMAT_BAYER16_GBRG = 19;
const uint GPUMAP_FORMAT_BAYER16_GRBG = 20;
const uint GPUMAP_FORMAT_BAYER16_RGGB = 21;
const uint GPUMAP_FORMAT_Y42B = 22;
const uint GPUMAP_FORMAT_Y444 = 23;
const uint GPUMAP_FORMAT_I420_10 = 24;
const uint GPUMAP_FORMAT_Y444_10 = 25;
const uint GPUMAP_FORMAT_P016 = 26;
const uint GPUMAP_FORMAT_VIDEO_OTHER = 63;
const uint GPUMAP_FORMAT_RGB_F32_PLANAR = 64;
const uint GPUMAP_FORMAT_RGB_F16_PLANAR = 65;
const uint GPUMAP_FORMAT_RGB_U8_PLANAR = 66;
const uint GPUMAP_FORMAT_RGB_F32 = 67;
const uint GPUMAP_FORMAT_RGB_F16 = 68;
const uint GPUMAP_FORMAT_RGB_U8 = 69;
const uint GPUMAP_FORMAT_U8 = 128;
const uint GPUMAP_FORMAT_S8 = 129;
const uint GPUMAP_FORMAT_S16 = 130;
const uint GPUMAP_FORMAT_F32 = 131;
const uint GPUMAP_FORMAT_U8_ZERO_128 = 132;
const uint GPUMAP_FORMAT_AUDIO_OTHER = 191;

const uint GPUMAP_FRAME_GAP = 1;

struct gpumap_view {
  uint64_t plane[GPUMAP_MAX_PLANES];
  uint stride[GPUMAP_MAX_PLANES];
  uint width;
  uint height;
  uint format;
  uint channels;
  uint rate;
  uint reserved;
  uint64_t bytes;
};

struct gpumap_color {
  float matrix[9];
  float offset[3];
};

struct gpumap_table {
  uint64_t address;
  uint64_t count;
};

struct gpumap_tensor {
  uint64_t address;
  uint64_t count;
  uint dims[GPUMAP_MAX_TENSOR_DIMS];
  uint rank;
  uint reserved;
};

struct gpumap_frame {
  gpumap_view in_view;   // gpumap_frame::in
  gpumap_view out_view;  // gpumap_frame::out
  uint64_t sequence;
  int64_t pts;
  int64_t duration;
  uint64_t result;
  uint64_t state;
  uint64_t state_bytes;
  uint flags;
  uint frame_rate;
  uint frame_rate_scale;
  uint reserved;
  gpumap_color color;
  float params[GPUMAP_MAX_PARAMS];

  uint64_t numbers[GPUMAP_MAX_PARAMS];
  gpumap_table tables[GPUMAP_MAX_TABLES];
  uint past_count;
  uint past_reserved;
  gpumap_view past[GPUMAP_MAX_HISTORY];

  uint64_t given;
  uint result_words;
  uint reserved_given;

  gpumap_tensor in_tensors[GPUMAP_MAX_TENSORS];
  gpumap_tensor out_tensors[GPUMAP_MAX_TENSORS];

  gpumap_color out_color;
};

layout(buffer_reference, scalar, buffer_reference_align = 8) readonly buffer gpumap_frame_at {
  gpumap_frame value;
};
layout(push_constant, scalar) uniform gpumap_push_constant {
  uint64_t frame_address;
} gpumap_push;
#define frame (gpumap_frame_at(gpumap_push.frame_address).value)

// Number `at` of params, exactly: an integer where the line `params` says so, else a double. That one is a macro, as
// load_f64() is.
int64_t param_i64(uint at) { return int64_t(frame.numbers[at]); }
#define param_f64(at) packDouble2x32(unpackUint2x32(frame.numbers[at]))

layout(buffer_reference, scalar, buffer_reference_align = 1) buffer gpumap_i8_at { int8_t value; };
layout(buffer_reference, scalar, buffer_reference_align = 2) buffer gpumap_i16_at { int16_t value; };
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer gpumap_i32_at { int value; };
layout(buffer_reference, scalar, buffer_reference_align = 8) buffer gpumap_i64_at { int64_t value; };
layout(buffer_reference, scalar, buffer_reference_align = 8) buffer gpumap_f64_at { double value; };
layout(buffer_reference, scalar, buffer_reference_align = 8) buffer gpumap_u32x2_at { uvec2 value; };
layout(buffer_reference, scalar, buffer_reference_align = 8) buffer gpumap_f32x2_at { vec2 value; };
layout(buffer_reference, scalar, buffer_reference_align = 1) buffer gpumap_u8_at { uint8_t value; };
layout(buffer_reference, scalar, buffer_reference_align = 2) buffer gpumap_u16_at { uint16_t value; };
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer gpumap_u32_at { uint value; };
layout(buffer_reference, scalar, buffer_reference_align = 4) buffer gpumap_f32_at { float value; };
layout(buffer_reference, scalar, buffer_reference_align = 8) buffer gpumap_u64_at { uint64_t value; };
layout(buffer_reference, scalar, buffer_reference_align = 16) buffer gpumap_u32x4_at { uvec4 value; };
layout(buffer_reference, scalar, buffer_reference_align = 16) buffer gpumap_f32x4_at { vec4 value; };

// load_T(address) and store_T(address, value): one number, or several that lie side by side. Addresses are device
// addresses in bytes, aligned to the size of what is loaded or stored; nothing checks it. T is u8, u16, u32, u64, i8, i16,
// i32, i64, f16, f32 or f64; u32x2, u32x4, f32x2 and f32x4 are vectors. What is smaller than 32 bits comes as uint, int
// or float; of what is stored the lower bits count, and f16 is rounded as the driver does.
uint load_u8(uint64_t address) { return uint(gpumap_u8_at(address).value); }
uint load_u16(uint64_t address) { return uint(gpumap_u16_at(address).value); }
uint load_u32(uint64_t address) { return gpumap_u32_at(address).value; }
float load_f32(uint64_t address) { return gpumap_f32_at(address).value; }
uint64_t load_u64(uint64_t address) { return gpumap_u64_at(address).value; }
uvec4 load_u32x4(uint64_t address) { return gpumap_u32x4_at(address).value; }
vec4 load_f32x4(uint64_t address) { return gpumap_f32x4_at(address).value; }
void store_u8(uint64_t address, uint value) { gpumap_u8_at(address).value = uint8_t(value); }
void store_u16(uint64_t address, uint value) { gpumap_u16_at(address).value = uint16_t(value); }
void store_u32(uint64_t address, uint value) { gpumap_u32_at(address).value = value; }
void store_f32(uint64_t address, float value) { gpumap_f32_at(address).value = value; }
void store_u64(uint64_t address, uint64_t value) { gpumap_u64_at(address).value = value; }
void store_u32x4(uint64_t address, uvec4 value) { gpumap_u32x4_at(address).value = value; }
void store_f32x4(uint64_t address, vec4 value) { gpumap_f32x4_at(address).value = value; }

int load_i8(uint64_t address) { return int(gpumap_i8_at(address).value); }
int load_i16(uint64_t address) { return int(gpumap_i16_at(address).value); }
int load_i32(uint64_t address) { return gpumap_i32_at(address).value; }
int64_t load_i64(uint64_t address) { return gpumap_i64_at(address).value; }
float load_f16(uint64_t address) { return unpackHalf2x16(load_u16(address)).x; }
uvec2 load_u32x2(uint64_t address) { return gpumap_u32x2_at(address).value; }
vec2 load_f32x2(uint64_t address) { return gpumap_f32x2_at(address).value; }
void store_i8(uint64_t address, int value) { gpumap_i8_at(address).value = int8_t(value); }
void store_i16(uint64_t address, int value) { gpumap_i16_at(address).value = int16_t(value); }
void store_i32(uint64_t address, int value) { gpumap_i32_at(address).value = value; }
void store_i64(uint64_t address, int64_t value) { gpumap_i64_at(address).value = value; }
void store_f16(uint64_t address, float value) { store_u16(address, packHalf2x16(vec2(value, 0.0)) & 0xffffu); }
void store_u32x2(uint64_t address, uvec2 value) { gpumap_u32x2_at(address).value = value; }
void store_f32x2(uint64_t address, vec2 value) { gpumap_f32x2_at(address).value = value; }

// Macros: a function, though nobody calls it, makes a shader need what not every device has.
#define load_f64(address) (gpumap_f64_at(address).value)
#define store_f64(address, number) (gpumap_f64_at(address).value = (number))

// Atomics on memory; they give what was there before. Sums of 64 bits and of floats need a device that has them.
uint atomic_add_u32(uint64_t address, uint number) { return atomicAdd(gpumap_u32_at(address).value, number); }
uint atomic_min_u32(uint64_t address, uint number) { return atomicMin(gpumap_u32_at(address).value, number); }
uint atomic_max_u32(uint64_t address, uint number) { return atomicMax(gpumap_u32_at(address).value, number); }
int atomic_min_i32(uint64_t address, int number) { return atomicMin(gpumap_i32_at(address).value, number); }
int atomic_max_i32(uint64_t address, int number) { return atomicMax(gpumap_i32_at(address).value, number); }
float atomic_min_f32(uint64_t address, float number) {
  uint before = load_u32(address);
  for (uint found = ~before; uintBitsToFloat(before) > number; before = found) {
    found = atomicCompSwap(gpumap_u32_at(address).value, before, floatBitsToUint(number));
    if (found == before) break;
  }
  return uintBitsToFloat(before);
}
float atomic_max_f32(uint64_t address, float number) {
  uint before = load_u32(address);
  for (uint found = ~before; uintBitsToFloat(before) < number; before = found) {
    found = atomicCompSwap(gpumap_u32_at(address).value, before, floatBitsToUint(number));
    if (found == before) break;
  }
  return uintBitsToFloat(before);
}
#define atomic_add_f32(address, number) atomicAdd(gpumap_f32_at(address).value, (number))
#define atomic_add_f64(address, number) atomicAdd(gpumap_f64_at(address).value, (number))
#define atomic_add_u64(address, number) atomicAdd(gpumap_u64_at(address).value, (number))

// Whether `address` is a multiple of `bytes`, a power of two.
bool gpumap_aligned(uint64_t address, uint bytes) { return (uint(address) & (bytes - 1u)) == 0u; }

// This thread's number in the whole grid, and how many there are. Some drivers allow only 65535 groups in a row, so a
// long 1-D grid continues in y: use these, not gl_GlobalInvocationID.x, for bytes and samples. Macros, for a shader's own
// workgroup size is known only behind its layout(local_size_x = ...) in; before that gl_WorkGroupSize says 1.
#define gpumap_thread() gpumap_thread_in(gl_WorkGroupSize.x * gl_WorkGroupSize.y * gl_WorkGroupSize.z)
#define gpumap_thread_count() gpumap_thread_count_in(gl_WorkGroupSize.x * gl_WorkGroupSize.y * gl_WorkGroupSize.z)

// What these two macros call, with the threads of a group.
uint64_t gpumap_thread_in(uint group_size) {
  uint64_t group = uint64_t(gl_WorkGroupID.x) +
                   uint64_t(gl_NumWorkGroups.x) * (uint64_t(gl_WorkGroupID.y) +
                                                   uint64_t(gl_NumWorkGroups.y) * uint64_t(gl_WorkGroupID.z));
  return group * uint64_t(group_size) + uint64_t(gl_LocalInvocationIndex);
}
uint64_t gpumap_thread_count_in(uint group_size) {
  return uint64_t(gl_NumWorkGroups.x) * uint64_t(gl_NumWorkGroups.y) * uint64_t(gl_NumWorkGroups.z) *
         uint64_t(group_size);
}

#endif
