// SPDX-License-Identifier: MIT
// The filter of fm, am and ssb: see radio_audio_job. A row of threads makes one output, as in ddc_filter. What ssb
// declares, whose parameters are not this kernel's own:
// gpumap: params rate:f64=0,lowest:f64=300,highest:f64=2700,lsb:u32=0 in [0,1],around128:u32=0 in [0,1]
// gpumap: input audio/x-raw,format={U8,S8,S16LE,F32LE,S16BE,U16LE,U16BE,S24LE,S24BE,S24_32LE,S24_32BE,S32LE,S32BE,U32LE,U32BE,F32BE,F64LE,F64BE},layout=interleaved,channels=2;application/x-iq,format=S12LE,layout=interleaved,channels=2
// gpumap: output audio/x-raw,format=F32LE,layout=interleaved,channels=1,rate={params.rate ? {params.rate} : [1,max]}
#include <gpumap/radio.h>
#include <gpumap/sums.h>

extern "C" __global__ void audio_filter(gpumap_frame frame) {
  __shared__ float partial[RADIO_BLOCK_THREADS];
  constexpr gpumap_u32 outputs_per_block = RADIO_BLOCK_THREADS / RADIO_SUM_THREADS;
  const auto& job = radio_job<radio_audio_job>(frame);
  const gpumap_u32 lane = threadIdx.x % RADIO_SUM_THREADS;
  for (gpumap_u64 base = 1ull * blockIdx.x * outputs_per_block; base < job.outputs;
       base += 1ull * gridDim.x * outputs_per_block) {
    const gpumap_u64 n = base + threadIdx.x / RADIO_SUM_THREADS;
    float sum = 0.0f, lost = 0.0f;
    if (n < job.outputs) {
      const gpumap_u64 at = job.phase + n * job.down;
      const float2* newest = radio_iq(frame.in.plane[0]) + at / job.up;
      const float2* row = radio_iq(frame.in.plane[1]) + at % job.up * job.taps;
      for (gpumap_u32 k = lane; k < job.taps;) {
        float some = 0.0f;
        for (gpumap_u32 i = 0; i < GPUMAP_PLAIN_SUM && k < job.taps; ++i, k += RADIO_SUM_THREADS) {
          const float2 iq = *(newest - k);
          some += row[k].x * iq.x - row[k].y * iq.y;
        }
        gpumap_add(sum, lost, some);
      }
    }
    partial[threadIdx.x] = sum;
    for (gpumap_u32 half = RADIO_SUM_THREADS / 2; half > 0; half /= 2) {
      __syncthreads();
      if (lane < half) partial[threadIdx.x] += partial[threadIdx.x + half];
    }
    if (lane == 0 && n < job.outputs) reinterpret_cast<float*>(frame.out.plane[0])[n] = partial[threadIdx.x];
    __syncthreads();
  }
}
