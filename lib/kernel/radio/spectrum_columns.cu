// SPDX-License-Identifier: MIT
// The first of two passes that a large transform takes, see radio_columns_job: samples become float32, get their
// window, and each column is transformed. A block has as many neighbouring columns as its threads can hold.
// SPECTRUM_FORMAT, a define of the kernel, is the samples' GPUMAP_FORMAT_*: code that a stream has no use for would
// push the other kernel out of the instruction cache.
#include <gpumap/two_pass.h>

constexpr int radix = SPECTRUM_COLUMN_RADIX;
constexpr int row_points = SPECTRUM_ROW_POINTS;
constexpr int columns = RADIO_FFT_THREADS / radix;
constexpr int blocks = row_points / columns;  // of a transform
// What a thread that reads skips per value, so that others of its warp use other banks.
constexpr int pitch = columns < 32 ? columns * (radix + 1) : columns * radix;

struct alignas(2) u8_pair_zero_128 {
  gpumap_u8_zero_128 x, y;
};

// As radio_sample, but I and Q in one load: their number is what this pass takes its time for.
template <typename Pair>
__device__ float2 pair_at(gpumap_u64 address, gpumap_i64 i) {
  const Pair pair = reinterpret_cast<const Pair*>(address)[i];
  return make_float2(gpumap_scaled(pair.x), gpumap_scaled(pair.y));
}

__device__ float2 sample_in_frame(const gpumap_frame& frame, gpumap_i64 i) {
  switch (SPECTRUM_FORMAT) {
    case GPUMAP_FORMAT_U8:
      return pair_at<uchar2>(frame.in.plane[0], i);
    case GPUMAP_FORMAT_U8_ZERO_128:
      return pair_at<u8_pair_zero_128>(frame.in.plane[0], i);
    case GPUMAP_FORMAT_S8:
      return pair_at<char2>(frame.in.plane[0], i);
    case GPUMAP_FORMAT_S16:
      return pair_at<short2>(frame.in.plane[0], i);
    default:
      return pair_at<float2>(frame.in.plane[0], i);
  }
}

// Samples of which some were kept from earlier frames, or that lie anyhow: by way of shared memory, so that one piece
// of code does for all values.
__device__ void load_any(float2* values, const gpumap_frame& frame, float* shared, gpumap_i64 first) {
  for (int imaginary = 0; imaginary < 2; ++imaginary) {
#pragma unroll 4
    for (int i = threadIdx.x; i < columns * SPECTRUM_COLUMN_POINTS; i += RADIO_FFT_THREADS) {
      const float2 sample = radio_sample(frame, first + i / columns * row_points + i % columns);
      shared[i] = imaginary ? sample.y : sample.x;
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < BLOCK_FFT_VALUES; ++i) {
      (imaginary ? values[i].y : values[i].x) = shared[threadIdx.x + RADIO_FFT_THREADS * i];
    }
    __syncthreads();
  }
}

extern "C" __global__ void __launch_bounds__(RADIO_FFT_THREADS, 2) spectrum_columns(gpumap_frame frame) {
  __shared__ float shared[32 * pitch];
  const auto& job = radio_job<radio_columns_job>(frame);
  const gpumap_u64 transform = blockIdx.x / blocks;
  const gpumap_u32 mine = threadIdx.x % columns;
  const gpumap_u32 first_column = blockIdx.x % blocks * columns;
  const gpumap_u32 column = first_column + mine;
  const gpumap_u32 part = threadIdx.x / columns;
  const gpumap_u32 place = row_points * part + column;  // in the transform, of the thread's first value

  float2 values[BLOCK_FFT_VALUES];
  const gpumap_i64 first = job.first + static_cast<gpumap_i64>(transform * job.hop);
  // The whole block's are there, and can be loaded so.
  if (first >= 0 && frame.in.plane[0] % (2 * gpumap_sample_bytes(SPECTRUM_FORMAT)) == 0) {
#pragma unroll
    for (int i = 0; i < BLOCK_FFT_VALUES; ++i) {
      values[i] = sample_in_frame(frame, first + place + row_points * radix * i);
    }
  } else {
    load_any(values, frame, shared, first + first_column);
  }
  if (job.windowed != 0) {
    // From value to value the cosine goes on by one 32nd of its period.
    const float2 start = block_fft_root(place, SPECTRUM_SIZE);
#pragma unroll
    for (int i = 0; i < BLOCK_FFT_VALUES; ++i) {
      const float c = radio_multiply(start, block_fft_root_of_32(i)).x;
      const float weight = job.window[0] + c * (job.window[1] + c * (job.window[2] + c * job.window[3]));
      values[i] = make_float2(weight * values[i].x, weight * values[i].y);
    }
  }

  block_fft_transform<32>(values);
  block_fft_twiddle<32>(values, block_fft_root(part, SPECTRUM_COLUMN_POINTS));
  block_fft_exchange(
      values, shared, [&](int i) { return mine + columns * part + pitch * block_fft_place<32>(i); },
      [&](int i) { return mine + columns * (i % radix) + pitch * (part + radix * (i / radix)); });

  const float2 step = block_fft_root(column, SPECTRUM_SIZE / 32);
  float2* out = radio_iq(frame.out.plane[0]) + transform * SPECTRUM_SIZE + place;
#pragma unroll
  for (int group = 0; group < 32 / radix; ++group) {
    float2* const those = values + radix * group;
    block_fft_transform<radix>(those);
    block_fft_twiddle<radix>(those, step);
    const float2 turn = block_fft_root(column * (part + radix * group), SPECTRUM_SIZE);
#pragma unroll
    for (int i = 0; i < radix; ++i) {
      out[row_points * (radix * group + 32 * i)] = radio_multiply(turn, those[block_fft_place<radix>(i)]);
    }
  }
}
