// SPDX-License-Identifier: MIT
// How far the phase turns from a sample to the next: see radio_level_job. What fm declares, whose parameters are not
// this kernel's own:
// gpumap: params rate:f64=0,deviation:f64=75000,deemphasis:f64=50,highest:f64=15000,around128:u32=0 in [0,1]
// gpumap: input audio/x-raw,format={U8,S8,S16LE,F32LE,S16BE,U16LE,U16BE,S24LE,S24BE,S24_32LE,S24_32BE,S32LE,S32BE,U32LE,U32BE,F32BE,F64LE,F64BE},layout=interleaved,channels=2;application/x-iq,format=S12LE,layout=interleaved,channels=2
// gpumap: output audio/x-raw,format=F32LE,layout=interleaved,channels=1,rate={params.rate ? {params.rate} : [1,max]}
#version 460
#define RADIO_JOB radio_level_job
#include <gpumap_radio.glsl>

void main() {
  const uint64_t from = frame.in_view.plane[0];
  const uint64_t step = gpumap_thread_count();
  for (uint64_t n = gpumap_thread(); n < job.count; n += step) {
    const vec2 before = load_iq(from, n);
    const float angle = radio_angle(radio_multiply(load_iq(from, n + 1ul), vec2(before.x, -before.y)));
    store_iq(frame.out_view.plane[0], n, vec2(job.scale * angle, 0.0));
  }
}
