// SPDX-License-Identifier: MIT
// The second of two passes that a large transform takes: each row of what spectrum_columns left at in.plane[0] is
// transformed, and its power added up over the transforms of a row of the spectrum. See radio_power_job; a block has
// the same bins of all of them, so that the sum is the same wherever frames end.
#include <gpumap/spectrum.h>
#include <gpumap/sums.h>
#include <gpumap/two_pass.h>

constexpr int radix = SPECTRUM_ROW_RADIX;
constexpr int column_points = SPECTRUM_COLUMN_POINTS;
constexpr int rows = RADIO_FFT_THREADS / radix;
constexpr int blocks = column_points / rows;  // of a transform
// From value to value and from row to row in shared memory: other threads of a warp use other banks.
constexpr int value_pitch = rows < 32 ? radix + 1 : radix;
constexpr int row_pitch = 32 * value_pitch + (rows < 32 ? 32 / rows : 1);

// The bin of value i of those that a block has in the end, neighbouring rows' next to one another.
__device__ gpumap_u32 bin_of(gpumap_u32 first_row, int i) {
  return (i / rows * column_points + first_row + i % rows + SPECTRUM_SIZE / 2) % SPECTRUM_SIZE;
}

// What is in `some` goes to the sum of its row, of which a launch has a part, none that is more than GPUMAP_PLAIN_SUM
// transforms or goes on beyond a multiple of that.
__device__ void add_to_row(const gpumap_frame& frame, const radio_power_job& job, const SpectrumRow& row,
                           gpumap_u32 first_row, const float* some) {
  const bool together = row.finished || (job.carried + job.transforms) % GPUMAP_PLAIN_SUM == 0;
#pragma unroll 1  // short: the instruction cache is for the transform
  for (int i = threadIdx.x; i < rows * SPECTRUM_ROW_POINTS; i += RADIO_FFT_THREADS) {
    const gpumap_u32 bin = bin_of(first_row, i);
    const float* const carried = reinterpret_cast<const float*>(frame.in.plane[1]) + bin;
    float sum = row.resumed ? carried[SPECTRUM_SIZE] : 0.0f;
    float lost = row.resumed ? carried[2 * SPECTRUM_SIZE] : 0.0f;
    if (together) gpumap_add(sum, lost, some[i]);
    if (row.finished) {
      reinterpret_cast<float*>(frame.out.plane[0])[bin] = spectrum_power_of(job, sum);
    } else {
      float* const left = reinterpret_cast<float*>(frame.out.plane[1]) + bin;
      left[0] = together ? 0.0f : some[i], left[SPECTRUM_SIZE] = sum, left[2 * SPECTRUM_SIZE] = lost;
    }
  }
}

extern "C" __global__ void __launch_bounds__(RADIO_FFT_THREADS, 2) spectrum_finish(gpumap_frame frame) {
  __shared__ float shared[rows * row_pitch];
  const auto& job = radio_job<radio_power_job>(frame);
  const gpumap_u64 sum_row = blockIdx.x / blocks;
  const gpumap_u32 first_row = blockIdx.x % blocks * rows;
  const SpectrumRow row = spectrum_row(job, sum_row);
  // Neighbours read neighbours of a row, and have the same bin of neighbouring rows afterwards.
  const gpumap_u32 read_row = threadIdx.x / radix, read_part = threadIdx.x % radix;
  const gpumap_u32 own_row = threadIdx.x % rows, own_part = threadIdx.x / rows;
  const auto own = [&](int i) { return rows * (own_part + radix * (i / radix) + 32 * (i % radix)) + own_row; };

  float sums[BLOCK_FFT_VALUES] = {};
  if (row.resumed) {
    const float* const carried = reinterpret_cast<const float*>(frame.in.plane[1]);
    for (int i = threadIdx.x; i < rows * SPECTRUM_ROW_POINTS; i += RADIO_FFT_THREADS) {
      shared[i] = carried[bin_of(first_row, i)];
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < BLOCK_FFT_VALUES; ++i) sums[i] = shared[own(i)];
    __syncthreads();
  }
  for (gpumap_u64 t = row.begin; t < row.end; ++t) {
    const float2* in =
        radio_iq(frame.in.plane[0]) + t * SPECTRUM_SIZE + (first_row + read_row) * SPECTRUM_ROW_POINTS + read_part;
    float2 values[BLOCK_FFT_VALUES];
#pragma unroll
    for (int i = 0; i < BLOCK_FFT_VALUES; ++i) values[i] = in[radix * i];
    block_fft_transform<32>(values);
    block_fft_twiddle<32>(values, block_fft_root(read_part, SPECTRUM_ROW_POINTS));
    block_fft_exchange(
        values, shared, [&](int i) { return read_row * row_pitch + read_part + value_pitch * block_fft_place<32>(i); },
        [&](int i) { return own_row * row_pitch + (i % radix) + value_pitch * (own_part + radix * (i / radix)); });
#pragma unroll
    for (int group = 0; group < 32 / radix; ++group) block_fft_transform<radix>(values + radix * group);
#pragma unroll
    for (int i = 0; i < BLOCK_FFT_VALUES; ++i) {
      const float2 x = values[i / radix * radix + block_fft_place<radix>(i % radix)];
      sums[i] += x.x * x.x + x.y * x.y;
    }
  }

#pragma unroll
  for (int i = 0; i < BLOCK_FFT_VALUES; ++i) shared[own(i)] = sums[i];
  __syncthreads();
  if (job.average > GPUMAP_PLAIN_SUM) {
    add_to_row(frame, job, row, first_row, shared);
    return;
  }
  float* const out = row.finished ? reinterpret_cast<float*>(frame.out.plane[0]) + sum_row * SPECTRUM_SIZE
                                  : reinterpret_cast<float*>(frame.out.plane[1]);
#pragma unroll 4
  for (int i = threadIdx.x; i < rows * SPECTRUM_ROW_POINTS; i += RADIO_FFT_THREADS) {
    out[bin_of(first_row, i)] = row.finished ? spectrum_power_of(job, shared[i]) : shared[i];
  }
}
