// SPDX-License-Identifier: MIT
// How strong each sample is: see radio_level_job. What am declares, whose parameters are not this kernel's own:
// gpumap: params rate:f64=0,lowest:f64=50,highest:f64=5000,around128:u32=0 in [0,1]
// gpumap: input audio/x-raw,format={U8,S8,S16LE,F32LE,S16BE,U16LE,U16BE,S24LE,S24BE,S24_32LE,S24_32BE,S32LE,S32BE,U32LE,U32BE,F32BE,F64LE,F64BE},layout=interleaved,channels=2;application/x-iq,format=S12LE,layout=interleaved,channels=2
// gpumap: output audio/x-raw,format=F32LE,layout=interleaved,channels=1,rate={params.rate ? {params.rate} : [1,max]}
#version 460
#define RADIO_JOB radio_level_job
#include <gpumap_radio.glsl>

void main() {
  const uint64_t step = gpumap_thread_count();
  for (uint64_t n = gpumap_thread(); n < job.count; n += step) {
    const vec2 iq = load_iq(frame.in_view.plane[0], n + 1ul);
    store_iq(frame.out_view.plane[0], n, vec2(job.scale * sqrt(iq.x * iq.x + iq.y * iq.y), 0.0));
  }
}
