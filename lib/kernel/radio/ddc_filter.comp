// SPDX-License-Identifier: MIT
// The polyphase FIR of ddc: see radio_ddc_job, and ddc_filter.cu for its shape.
// What ddc declares, whose parameters are not this kernel's own:
// gpumap: params frequency:f64=0,rate:f64=0,bandwidth:f64=0,taps:f64=0,attenuation:f64=80,around128:u32=0 in [0,1],sky:f64=0,center:f64=0
// gpumap: tune frequency,sky,center
// gpumap: input audio/x-raw,format={U8,S8,S16LE,F32LE,S16BE,U16LE,U16BE,S24LE,S24BE,S24_32LE,S24_32BE,S32LE,S32BE,U32LE,U32BE,F32BE,F64LE,F64BE},layout=interleaved,channels={2,1};application/x-iq,format=S12LE,layout=interleaved,channels=2
// gpumap: output audio/x-raw,format=F32LE,layout=interleaved,channels=2,channel-mask=,rate={params.rate ? {params.rate} : [1,max]}
#version 460
#define RADIO_JOB radio_ddc_job
#include <gpumap_radio.glsl>
#include <gpumap_sums.glsl>

shared vec2 partial[RADIO_BLOCK_THREADS];

void main() {
  const uint sum_threads = job.sum_threads;
  const uint outputs_per_block = RADIO_BLOCK_THREADS / sum_threads;
  const uint thread = gl_LocalInvocationIndex;
  const uint lane = thread % sum_threads;
  const uint64_t outputs = job.outputs;
  const uint64_t up = uint64_t(job.up);
  const uint64_t down = uint64_t(job.down);
  const uint taps = job.taps;
  const bool between = job.phases != job.up;
  const uint64_t samples = frame.in_view.plane[0];
  const uint64_t filter_rows = frame.in_view.plane[1];
  const uint64_t step = uint64_t(gl_NumWorkGroups.x) * uint64_t(outputs_per_block);
  for (uint64_t base = uint64_t(gl_WorkGroupID.x) * uint64_t(outputs_per_block); base < outputs; base += step) {
    const uint64_t n = base + uint64_t(thread / sum_threads);
    vec2 sum = vec2(0.0), lost = vec2(0.0);
    if (n < outputs) {
      const uint64_t at = job.phase + n * down;
      const uint64_t newest = samples + 8ul * (at / up);
      uint64_t row = at % up;
      float part = 0.0;
      if (between) {
        const uint64_t place = row * uint64_t(job.phases);
        row = place / up;
        part = float(uint(place % up)) / float(job.up);
      }
      const uint64_t filter_row = filter_rows + 4ul * row * uint64_t(taps);
      for (uint k = job.begin + lane; k < job.end;) {
        vec2 some = vec2(0.0);
        for (uint i = 0u; i < GPUMAP_PLAIN_SUM && k < job.end; ++i) {
          const uint64_t tap_at = filter_row + 4ul * uint64_t(k);
          float tap = load_f32(tap_at);
          if (between) tap += part * (load_f32(tap_at + 4ul * uint64_t(taps)) - tap);
          some += tap * load_iq(newest - 8ul * uint64_t(k), 0ul);
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
    if (lane == 0u && n < outputs) {
      vec2 made = partial[thread];
      if (job.begin != 0u) made += load_iq(frame.out_view.plane[0], n);
      store_iq(frame.out_view.plane[0], n, made);
    }
    barrier();
  }
}
