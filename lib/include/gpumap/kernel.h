/* SPDX-License-Identifier: MIT
 *
 * The kernel contract: what a kernel is handed for each frame. Plain C, seen by the host compiler and by NVRTC as
 * <gpumap/kernel.h>; gpumap.glsl is its twin for compute shaders, with the same layout byte for byte.
 *
 * A CUDA kernel:    extern "C" __global__ void name(gpumap_frame frame)
 * A compute shader: #include <gpumap.glsl>, then void main() reads `frame`; there `in` and `out` are keywords, so the
 *                   two views are frame.in_view and frame.out_view.
 */
#ifndef GPUMAP_KERNEL_H
#define GPUMAP_KERNEL_H

#ifdef __CUDACC_RTC__
typedef unsigned char gpumap_u8;
typedef unsigned int gpumap_u32;
typedef int gpumap_i32;
typedef unsigned long long gpumap_u64;
typedef long long gpumap_i64;
#else
#include <stdint.h>
typedef uint8_t gpumap_u8;
typedef uint32_t gpumap_u32;
typedef int32_t gpumap_i32;
typedef uint64_t gpumap_u64;
typedef int64_t gpumap_i64;
#endif

#define GPUMAP_MAX_PLANES 4
#define GPUMAP_MAX_PARAMS 64
#define GPUMAP_RESULT_WORDS 32

/* What the bytes of a view mean. Values are part of the contract: never renumber. */
enum gpumap_format {
  GPUMAP_FORMAT_BYTES = 0,
  /* video, 8 bit */
  GPUMAP_FORMAT_NV12 = 1,
  GPUMAP_FORMAT_I420 = 2,
  GPUMAP_FORMAT_YUY2 = 3,
  GPUMAP_FORMAT_UYVY = 4,
  GPUMAP_FORMAT_RGB = 5,
  GPUMAP_FORMAT_BGR = 6,
  GPUMAP_FORMAT_RGBA = 7,
  GPUMAP_FORMAT_BGRA = 8,
  GPUMAP_FORMAT_VIDEO_OTHER = 63,
  /* planar RGB, float32, height x width samples a plane, three planes */
  GPUMAP_FORMAT_RGB_F32_PLANAR = 64,
  /* interleaved samples: `channels` a frame */
  GPUMAP_FORMAT_U8 = 128,
  GPUMAP_FORMAT_S8 = 129,
  GPUMAP_FORMAT_S16 = 130,
  GPUMAP_FORMAT_F32 = 131,
  GPUMAP_FORMAT_AUDIO_OTHER = 191
};

/* One image, one block of samples or plain bytes. Addresses are device addresses, lengths are bytes. */
typedef struct gpumap_view {
  gpumap_u64 plane[GPUMAP_MAX_PLANES];  /* address of each plane; plane[0] alone for what has no planes */
  gpumap_u32 stride[GPUMAP_MAX_PLANES]; /* bytes from one row to the next */
  gpumap_u32 width;                     /* pixels; 0 when not video */
  gpumap_u32 height;                    /* pixels; 0 when not video */
  gpumap_u32 format;                    /* enum gpumap_format */
  gpumap_u32 channels;                  /* interleaved channels of audio or IQ (IQ has 2); 0 otherwise */
  gpumap_u32 rate;                      /* sample frames a second of audio or IQ; 0 otherwise */
  gpumap_u32 reserved;                  /* 0 */
  gpumap_u64 bytes;                     /* bytes in use, from plane[0] on */
} gpumap_view;

/* YCbCr to RGB, from the caps' colorimetry: rgb = matrix * (ycbcr_8bit - offset), results in 0..255. Row-major.
 * For RGB input the matrix is the identity, or the range expansion. */
typedef struct gpumap_color {
  float matrix[9];
  float offset[3];
} gpumap_color;

typedef struct gpumap_frame {
  gpumap_view in;
  gpumap_view out;
  gpumap_u64 sequence; /* of the frame on its channel, from 0 */
  gpumap_i64 pts;      /* ns, -1 when none */
  gpumap_i64 duration; /* ns, -1 when none */
  gpumap_u64 result;   /* address of GPUMAP_RESULT_WORDS words. gpumapkernel zeroes them before each launch and tells
                          them after it, where any is not zero: element message and buffer meta, see the README */
  gpumap_u64 state;    /* address of state_bytes bytes that are yours: zero at the stream's first frame and wherever it
                          begins anew (new caps, after a flush), else as the frame before left them. 16-aligned */
  gpumap_u64 state_bytes;
  gpumap_color color;
  float params[GPUMAP_MAX_PARAMS];
} gpumap_frame;

#endif
