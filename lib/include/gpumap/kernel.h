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
#define GPUMAP_MAX_TABLES 8
#define GPUMAP_MAX_HISTORY 8
#define GPUMAP_MAX_TENSORS 8
#define GPUMAP_MAX_TENSOR_DIMS 8
#define GPUMAP_RESULT_WORDS 32 /* of a result block, unless the kernel declares more with `result-words` */
#define GPUMAP_MAX_RESULT_WORDS 4096

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
  /* video, 10 bit: in the high bits of 16, three in a word of 32, again in the high bits of 16 */
  GPUMAP_FORMAT_P010 = 9,
  GPUMAP_FORMAT_V210 = 10,
  GPUMAP_FORMAT_Y210 = 11,
  /* brightness alone */
  GPUMAP_FORMAT_GRAY8 = 12,
  GPUMAP_FORMAT_GRAY16 = 13,
  /* one colour a pixel, named as the first two rows begin; 8 bit, or up to 16 in the low bits of 16 */
  GPUMAP_FORMAT_BAYER8_BGGR = 14,
  GPUMAP_FORMAT_BAYER8_GBRG = 15,
  GPUMAP_FORMAT_BAYER8_GRBG = 16,
  GPUMAP_FORMAT_BAYER8_RGGB = 17,
  GPUMAP_FORMAT_BAYER16_BGGR = 18,
  GPUMAP_FORMAT_BAYER16_GBRG = 19,
  GPUMAP_FORMAT_BAYER16_GRBG = 20,
  GPUMAP_FORMAT_BAYER16_RGGB = 21,
  /* video in planes: 8 bit, 10 bit in the low bits of 16, 16 bit */
  GPUMAP_FORMAT_Y42B = 22,
  GPUMAP_FORMAT_Y444 = 23,
  GPUMAP_FORMAT_I420_10 = 24,
  GPUMAP_FORMAT_Y444_10 = 25,
  GPUMAP_FORMAT_P016 = 26,
  GPUMAP_FORMAT_VIDEO_OTHER = 63,
  /* tensors of RGB, of float32, float16 or 8 bit: height x width samples in each of three planes */
  GPUMAP_FORMAT_RGB_F32_PLANAR = 64,
  GPUMAP_FORMAT_RGB_F16_PLANAR = 65,
  GPUMAP_FORMAT_RGB_U8_PLANAR = 66,
  /* the same, interleaved */
  GPUMAP_FORMAT_RGB_F32 = 67,
  GPUMAP_FORMAT_RGB_F16 = 68,
  GPUMAP_FORMAT_RGB_U8 = 69,
  /* interleaved samples: `channels` a frame */
  GPUMAP_FORMAT_U8 = 128,
  GPUMAP_FORMAT_S8 = 129,
  GPUMAP_FORMAT_S16 = 130,
  GPUMAP_FORMAT_F32 = 131,
  /* GPUMAP_FORMAT_U8 with its zero at 128, for gpumap_sample(): no frame comes with it */
  GPUMAP_FORMAT_U8_ZERO_128 = 132,
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

/* YCbCr to RGB, from the caps' colorimetry: rgb = matrix * (ycbcr - offset), results in 0..255. Row-major. `ycbcr` is
 * as large as the format makes it: to 255 in 8 bits, to 1023 in 10 bits, wherever in a word these lie. For RGB input
 * the matrix is the identity, or the expansion of range or bits; GRAY and BAYER are such input too. */
typedef struct gpumap_color {
  float matrix[9];
  float offset[3];
} gpumap_color;

enum gpumap_frame_flags {
  GPUMAP_FRAME_GAP = 1 /* does not follow on the frame before it: a stream begins, or some is missing between them */
};

/* A file of numbers, from a line `table`: see lib/kernel/README.md. Only read it: frames share it. */
typedef struct gpumap_table {
  gpumap_u64 address; /* of the first element, 16-aligned; 0 where `count` is 0 */
  gpumap_u64 count;   /* elements */
} gpumap_table;

/* A tensor beside the frame, from a line `input-tensor` or `output-tensor`: its elements lie one after the other, those
 * of the last dimension side by side. */
typedef struct gpumap_tensor {
  gpumap_u64 address;                      /* of the first element, aligned to its size; 256-aligned of an output */
  gpumap_u64 count;                        /* elements */
  gpumap_u32 dims[GPUMAP_MAX_TENSOR_DIMS]; /* outermost first; 1 where there are no more */
  gpumap_u32 rank;                         /* how many dimensions it has */
  gpumap_u32 reserved;                     /* 0 */
} gpumap_tensor;

typedef struct gpumap_frame {
  gpumap_view in;
  gpumap_view out;
  gpumap_u64 sequence; /* of the frame on its channel, from 0 */
  gpumap_i64 pts;      /* ns, -1 when none */
  gpumap_i64 duration; /* ns, -1 when none */
  gpumap_u64 result;   /* address of result_words words of 64 bits. gpumapkernel zeroes them before each frame and
                          tells them after it, where any is not zero: element message and buffer meta, see Results in
                          lib/kernel/README.md */
  gpumap_u64 state;    /* address of state_bytes bytes that are yours: zero at the stream's first frame and wherever it
                          begins anew (new caps, a flush, a gap), else as the frame before left them. 16-aligned */
  gpumap_u64 state_bytes;
  gpumap_u32 flags;            /* enum gpumap_frame_flags */
  gpumap_u32 frame_rate;       /* frames a second, over frame_rate_scale (30000 over 1001); 0 where they vary, or */
  gpumap_u32 frame_rate_scale; /* where the caps do not say: then 1 */
  gpumap_u32 reserved;         /* 0 */
  gpumap_color color;
  float params[GPUMAP_MAX_PARAMS];

  /* Each launch hands the frame over, and takes the longer the larger it is. A .cu that names nothing of the rest, and
   * includes no files but gpumap's, is compiled with this macro. So may be a .ptx or .cubin of yours. */
#ifndef GPUMAP_SHORT_FRAME
  /* What the lines `params`, `table` and `history` ask for. */
  gpumap_u64 numbers[GPUMAP_MAX_PARAMS];  /* those of params without rounding: read them by gpumap_param_i64() where the
                                             line `params` says i32, u32 or i64, else by gpumap_param_f64() */
  gpumap_table tables[GPUMAP_MAX_TABLES]; /* in the order of the lines `table` */
  gpumap_u32 past_count;                  /* how many of past[] there are: 0 to what the line `history` says */
  gpumap_u32 past_reserved;               /* 0 */
  gpumap_view past[GPUMAP_MAX_HISTORY];   /* the frames that were `in` before, the last one first. Only read them */

  /* What a kernel says of its output. */
  gpumap_u64 given; /* address of a word, 0 before each frame: for a kernel that declares `output-may`, and only there.
                       With `shorten` the bytes of the output that go on, from plane[0] on; 0 drops the frame. With
                       `drop` alone 0 drops it, and anything else keeps it whole */
  gpumap_u32 result_words;   /* at `result`: as the kernel declares, else GPUMAP_RESULT_WORDS */
  gpumap_u32 reserved_given; /* 0 */

  /* What the lines `input-tensor` and `output-tensor` ask for, in their order. Only read the former: others may have
     them too. The latter are zero before each frame. */
  gpumap_tensor in_tensors[GPUMAP_MAX_TENSORS];
  gpumap_tensor out_tensors[GPUMAP_MAX_TENSORS];

  /* The other way around, of the output: ycbcr = matrix * rgb + offset, of rgb in 0..255. Of RGB and tensors the
   * identity, or the reduction of range. */
  gpumap_color out_color;
#endif
} gpumap_frame;

#ifdef __CUDACC__
/* Number `at` of params, exactly. Macros: to hand the frame on by reference may copy all of it for each thread. */
#define gpumap_param_i64(frame, at) (static_cast<gpumap_i64>((frame).numbers[at]))
#define gpumap_param_f64(frame, at) (__longlong_as_double(static_cast<gpumap_i64>((frame).numbers[at])))
#endif

#endif
