// SPDX-License-Identifier: MIT
// The polyphase FIR of ddc: see radio_ddc_job. A warp makes one output: neighbouring threads read neighbouring samples,
// and a strong decimation, of few outputs with many taps each, still fills the GPU.
// What ddc declares, whose parameters are not this kernel's own:
// gpumap: params frequency:f64=0,rate:f64=0,bandwidth:f64=0,taps:f64=0,attenuation:f64=80,around128:u32=0 in [0,1],sky:f64=0,center:f64=0
// gpumap: tune frequency,sky,center
// gpumap: input audio/x-raw,format={U8,S8,S16LE,F32LE,S16BE,U16LE,U16BE,S24LE,S24BE,S24_32LE,S24_32BE,S32LE,S32BE,U32LE,U32BE,F32BE,F64LE,F64BE},layout=interleaved,channels={2,1};application/x-iq,format=S12LE,layout=interleaved,channels=2
// gpumap: output audio/x-raw,format=F32LE,layout=interleaved,channels=2,channel-mask=,rate={params.rate ? {params.rate} : [1,max]}
#include <gpumap/radio.h>
#include <gpumap/sums.h>

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
    float2 sum = make_float2(0.0f, 0.0f), lost = sum;
    if (n < job.outputs) {
      const gpumap_u64 at = job.phase + n * job.down;
      const float2* newest = samples + at / job.up;
      const gpumap_u32 phase = at % job.up;
      gpumap_u64 row = phase;
      float part = 0.0f;
      const bool between = job.phases != job.up;
      if (between) {
        const gpumap_u64 place = 1ull * phase * job.phases;
        row = place / job.up;
        part = static_cast<float>(place % job.up) / static_cast<float>(job.up);
      }
      const float* taps = filters + row * job.taps;
      for (gpumap_u32 k = job.begin + lane; k < job.end;) {
        float2 some = make_float2(0.0f, 0.0f);
        for (gpumap_u32 i = 0; i < GPUMAP_PLAIN_SUM && k < job.end; ++i, k += RADIO_SUM_THREADS) {
          const float2 iq = *(newest - k);
          float tap = taps[k];
          if (between) tap += part * (taps[job.taps + k] - tap);
          some.x += tap * iq.x;
          some.y += tap * iq.y;
        }
        gpumap_add(sum.x, lost.x, some.x);
        gpumap_add(sum.y, lost.y, some.y);
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
    if (lane == 0 && n < job.outputs) {
      float2* const out = radio_iq(frame.out.plane[0]) + n;
      float2 made = partial[threadIdx.x];
      if (job.begin != 0) made.x += out->x, made.y += out->y;
      *out = made;
    }
    __syncthreads();
  }
}
