// SPDX-License-Identifier: MIT
// The polyphase FIR of ddc: see radio_ddc_job. A warp makes one output: neighbouring threads read neighbouring samples,
// and a strong decimation, of few outputs with many taps each, still fills the GPU.
#include <gpumap/radio.h>

extern "C" __global__ void ddc_filter(gpumap_frame frame) {
  __shared__ float2 partial[RADIO_BLOCK_THREADS];
  constexpr gpumap_u32 outputs_per_block = RADIO_BLOCK_THREADS / RADIO_SUM_THREADS;
  const auto& job = radio_job<radio_ddc_job>(frame);
  const float2* samples = radio_iq(frame.in.plane[0]);
  const float* filters = reinterpret_cast<const float*>(frame.in.plane[1]);
  const gpumap_u32 lane = threadIdx.x % RADIO_SUM_THREADS;
  for (gpumap_u64 base = 1ull * blockIdx.x * outputs_per_block; base < job.outputs;
       base += 1ull * gridDim.x * outputs_per_block) {
    const gpumap_u64 n = base + threadIdx.x / RADIO_SUM_THREADS;
    float2 sum = make_float2(0.0f, 0.0f);
    if (n < job.outputs) {
      const gpumap_u64 at = job.phase + n * job.down;
      const float2* newest = samples + at / job.up;
      const float* taps = filters + at % job.up * job.taps;
      for (gpumap_u32 k = lane; k < job.taps; k += RADIO_SUM_THREADS) {
        const float2 iq = *(newest - k);
        sum.x += taps[k] * iq.x;
        sum.y += taps[k] * iq.y;
      }
    }
    partial[threadIdx.x] = sum;
    for (gpumap_u32 half = RADIO_SUM_THREADS / 2; half > 0; half /= 2) {
      __syncthreads();
      if (lane < half) {
        partial[threadIdx.x].x += partial[threadIdx.x + half].x;
        partial[threadIdx.x].y += partial[threadIdx.x + half].y;
      }
    }
    if (lane == 0 && n < job.outputs) radio_iq(frame.out.plane[0])[n] = partial[threadIdx.x];
    __syncthreads();
  }
}
