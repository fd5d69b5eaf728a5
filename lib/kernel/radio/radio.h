/* SPDX-License-Identifier: MIT
 * Given to NVRTC as <gpumap/radio.h>, and to the host: what the kernels of the radio built-ins are told in params,
 * beside the frame's own fields. gpumap_radio.glsl is its twin. Distances in the stream count IQ samples from the
 * frame's first one: those kept from earlier frames are negative. In frame.state lie the kept samples, as float32 I and
 * Q; the last of them is number -1.
 */
#ifndef GPUMAP_RADIO_H
#define GPUMAP_RADIO_H

#include <gpumap/kernel.h>

#define RADIO_BLOCK_THREADS 128
#define RADIO_SUM_THREADS 32 /* that share one sum of ddc_filter; of a shader as many as its job says */

/* Keep `count` samples from `first` on, at out.plane[0]. Those of this frame are turned by an oscillator: its phase at
 * the frame's first sample is `position` of its `period`, in samples; it turns by step / 2^64 a sample, from `start`
 * on, in 2^-64 turns. */
typedef struct radio_keep_job {
  gpumap_i64 first;
  gpumap_u64 count;
  gpumap_u64 start;
  gpumap_u64 position;
  gpumap_u64 period;
  gpumap_u64 step;
} radio_keep_job;

/* FIR at `up` times the input's rate, of which each `down`-th value is output. taps: in.plane[1], a row for each phase;
 * with fewer `phases` than `up`, for as many equally apart, one row more, and taps interpolated between two rows. The
 * first output's newest sample is in.plane[0], its phase is `phase`. Taps from `begin` to `end`: from 0 on they make
 * the outputs, later ones add to them. */
typedef struct radio_ddc_job {
  gpumap_u64 outputs;
  gpumap_u64 phase;
  gpumap_u32 up;
  gpumap_u32 down;
  gpumap_u32 taps;
  gpumap_u32 phases;
  gpumap_u32 begin;
  gpumap_u32 end;
  gpumap_u32 sum_threads;
  gpumap_u32 reserved;
} radio_ddc_job;

/* Number n of `count` at out.plane[0], with Q 0: `scale` times what sample n + 1 at in.plane[0] says, for fm beside
 * sample n. */
typedef struct radio_level_job {
  gpumap_u64 count;
  float scale;
  gpumap_u32 reserved;
} radio_level_job;

/* As radio_ddc_job, with all phases: the real part of complex taps times samples. */
typedef struct radio_audio_job {
  gpumap_u64 outputs;
  gpumap_u64 phase;
  gpumap_u32 up;
  gpumap_u32 down;
  gpumap_u32 taps;
  gpumap_u32 sum_threads;
} radio_audio_job;

/* One pass of a batch of FFTs (Stockham): from in.plane[0] to out.plane[0]; in.plane[1]: exp(-2 pi i k / size). */
typedef struct radio_fft_job {
  gpumap_u64 transforms;
  gpumap_u32 size;
  gpumap_u32 stride; /* product of the radices of the passes before */
  gpumap_u32 radix;  /* 2 or 4 */
  gpumap_u32 reserved;
} radio_fft_job;

/* `transforms` rows: value i of a row at out.plane[0] is value i of one at in.plane[0] times number i of in.plane[1],
 * or value -i modulo from_size, if `backwards`. What from_size has no values for is 0. */
typedef struct radio_chirp_job {
  gpumap_u64 transforms;
  gpumap_u32 from_size;
  gpumap_u32 to_size;
  gpumap_u32 backwards;
  gpumap_u32 reserved;
} radio_chirp_job;

/* Transform t gets samples first + t * hop and on. */
typedef struct radio_rows_job {
  gpumap_i64 first;
  gpumap_u64 transforms;
  gpumap_u32 size;
  gpumap_u32 hop;
} radio_rows_job;

/* |X|^2 of `transforms` at in.plane[0], each `average` of them summed to a row at out.plane[0]. `carried` are in the
 * sum at in.plane[1] already; what is left over goes to out.plane[1]. Each GPUMAP_PLAIN_SUM of a row are added up as
 * they are, and those sums with compensation: three arrays of `size` floats, of those not yet together, of the sum, and
 * of what rounding took from it. spectrum_power windows X: a window that is a sum
 * of cosines, window[0] - 2 window[1] cos(2 pi i / size) + 2 window[2] cos(4 pi i / size) - ..., adds neighbouring
 * bins. */
typedef struct radio_power_job {
  gpumap_u64 transforms;
  gpumap_u32 size;
  gpumap_u32 average;
  gpumap_u32 carried;
  gpumap_u32 decibel;
  float scale;
  gpumap_u32 rows;  /* touched, the unfinished one too */
  gpumap_u32 terms; /* of window that are not 0: 1 to 4 */
  float window[4];
} radio_power_job;

/* The newest sample of step m is newest + m * hop; the first step's has number `turn` of `channels` in the stream. The
 * prototype filter, `taps` times `channels` long, is in.plane[1]. */
typedef struct radio_fold_job {
  gpumap_i64 newest;
  gpumap_u64 steps;
  gpumap_u32 channels;
  gpumap_u32 hop;
  gpumap_u32 taps;
  gpumap_u32 turn;
} radio_fold_job;

#ifdef __CUDACC_RTC__
#include <gpumap/grid.h>
#include <gpumap/samples.h>

template <typename Job>
__device__ inline const Job& radio_job(const gpumap_frame& frame) {
  static_assert(sizeof(Job) <= sizeof(frame.params), "no room in params");
  return *reinterpret_cast<const Job*>(frame.params);
}

__device__ inline float2* radio_iq(gpumap_u64 address) {
  return reinterpret_cast<float2*>(address);
}

/* Sample i of the stream, that of one channel being I; before the first that was kept there is silence. */
__device__ inline float2 radio_sample(const gpumap_frame& frame, gpumap_i64 i) {
  if (i >= 0) {
    if (frame.in.channels == 1) return make_float2(gpumap_sample(frame.in.plane[0], frame.in.format, i), 0.0f);
    return make_float2(gpumap_sample(frame.in.plane[0], frame.in.format, 2 * i),
                       gpumap_sample(frame.in.plane[0], frame.in.format, 2 * i + 1));
  }
  const gpumap_i64 at = i + static_cast<gpumap_i64>(frame.state_bytes / sizeof(float2));
  return at < 0 ? make_float2(0.0f, 0.0f) : radio_iq(frame.state)[at];
}

/* The logarithm of a power of two: sizes are such, and a 64-bit division costs as much as a pass's arithmetic. */
__device__ inline gpumap_u32 radio_log2(gpumap_u32 size) {
  return 31 - __clz(static_cast<int>(size));
}

__device__ inline float2 radio_multiply(float2 a, float2 b) {
  return make_float2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}

/* Of `iq`, from -pi to pi; 0 for 0. Cephes' atanf: both back ends shall agree. */
__device__ inline float radio_angle(float2 iq) {
  const float x = fabsf(iq.x), y = fabsf(iq.y);
  const float large = fmaxf(x, y);
  if (large == 0.0f) return 0.0f;
  float slope = fminf(x, y) / large;
  const bool steep = slope > 0.4142135623731f;
  if (steep) slope = (slope - 1.0f) / (slope + 1.0f);
  const float z = slope * slope;
  float angle =
      (((8.05374449538e-2f * z - 1.38776856032e-1f) * z + 1.99777106478e-1f) * z - 3.33329491539e-1f) * z * slope +
      slope;
  if (steep) angle += 0.785398163397448f;
  if (y > x) angle = 1.570796326794897f - angle;
  if (iq.x < 0.0f) angle = 3.141592653589793f - angle;
  return iq.y < 0.0f ? -angle : angle;
}

/* exp(2 pi i phase / 2^64). Polynomials (Cephes' sinf and cosf): a shader's sin() may be as coarse as 2^-11, and both
 * backends shall agree. */
__device__ inline float2 radio_phasor(gpumap_u64 phase) {
  const gpumap_u32 turn = static_cast<gpumap_u32>(phase >> 32);
  const gpumap_u32 quarter = (turn + 0x20000000u) >> 30;
  const float x = static_cast<float>(static_cast<gpumap_i32>(turn - (quarter << 30))) * 1.46291807927e-9f;
  const float z = x * x;
  const float sine = ((-1.9515295891e-4f * z + 8.3321608736e-3f) * z - 1.6666654611e-1f) * z * x + x;
  const float cosine =
      ((2.443315711809948e-5f * z - 1.388731625493765e-3f) * z + 4.166664568298827e-2f) * z * z - 0.5f * z + 1.0f;
  switch (quarter) {
    case 0:
      return make_float2(cosine, sine);
    case 1:
      return make_float2(-sine, cosine);
    case 2:
      return make_float2(-cosine, -sine);
    default:
      return make_float2(sine, -cosine);
  }
}
#endif

#endif
