// SPDX-License-Identifier: MIT
// The filter of fm, am and ssb: see radio_audio_job. A row of threads makes one output, as in ddc_filter. What ssb
// declares, whose parameters are not this kernel's own:
// gpumap: params rate:f64=0,lowest:f64=300,highest:f64=2700,lsb:u32=0 in [0,1],around128:u32=0 in [0,1]
// gpumap: input audio/x-raw,format={U8,S8,S16LE,F32LE,S16BE,U16LE,U16BE,S24LE,S24BE,S24_32LE,S24_32BE,S32LE,S32BE,U32LE,U32BE,F32BE,F64LE,F64BE},layout=interleaved,channels=2;application/x-iq,format=S12LE,layout=interleaved,channels=2
// gpumap: output audio/x-raw,format=F32LE,layout=interleaved,channels=1,rate={params.rate ? {params.rate} : [1,max]}
#version 460
#define RADIO_JOB radio_audio_job
#include <gpumap_radio.glsl>
#include <gpumap_sums.glsl>

shared float partial[RADIO_BLOCK_THREADS];

void main() {
  const uint sum_threads = job.sum_threads;
  const uint outputs_per_block = RADIO_BLOCK_THREADS / sum_threads;
  const uint thread = gl_LocalInvocationIndex;
  const uint lane = thread % sum_threads;
  const uint64_t outputs = job.outputs;
  const uint64_t up = uint64_t(job.up);
  const uint64_t down = uint64_t(job.down);
  const uint taps = job.taps;
  const uint64_t samples = frame.in_view.plane[0];
  const uint64_t filter_rows = frame.in_view.plane[1];
  const uint64_t step = uint64_t(gl_NumWorkGroups.x) * uint64_t(outputs_per_block);
  for (uint64_t base = uint64_t(gl_WorkGroupID.x) * uint64_t(outputs_per_block); base < outputs; base += step) {
    const uint64_t n = base + uint64_t(thread / sum_threads);
    float sum = 0.0, lost = 0.0;
    if (n < outputs) {
      const uint64_t at = job.phase + n * down;
      const uint64_t newest = samples + 8ul * (at / up);
      const uint64_t row = filter_rows + 8ul * (at % up) * uint64_t(taps);
      for (uint k = lane; k < taps;) {
        float some = 0.0;
        for (uint i = 0u; i < GPUMAP_PLAIN_SUM && k < taps; ++i) {
          const vec2 tap = load_iq(row, uint64_t(k));
          const vec2 sample_iq = load_iq(newest - 8ul * uint64_t(k), 0ul);
          some += tap.x * sample_iq.x - tap.y * sample_iq.y;
          k += sum_threads;
        }
        gpumap_add(sum, lost, some);
      }
    }
    partial[thread] = sum;
    for (uint half_left = sum_threads / 2; half_left > 0u; half_left /= 2u) {
      barrier();
      if (lane < half_left) partial[thread] += partial[thread + half_left];
    }
    if (lane == 0u && n < outputs) store_f32(frame.out_view.plane[0] + 4ul * n, partial[thread]);
    barrier();
  }
}
