// SPDX-License-Identifier: MIT
// How far the phase turns from a sample to the next: see radio_level_job. What fm declares, whose parameters are not
// this kernel's own:
// gpumap: params rate:f64=0,deviation:f64=75000,deemphasis:f64=50,highest:f64=15000,around128:u32=0 in [0,1]
// gpumap: input audio/x-raw,format={U8,S8,S16LE,F32LE,S16BE,U16LE,U16BE,S24LE,S24BE,S24_32LE,S24_32BE,S32LE,S32BE,U32LE,U32BE,F32BE,F64LE,F64BE},layout=interleaved,channels=2;application/x-iq,format=S12LE,layout=interleaved,channels=2
// gpumap: output audio/x-raw,format=F32LE,layout=interleaved,channels=1,rate={params.rate ? {params.rate} : [1,max]}
#include <gpumap/radio.h>

extern "C" __global__ void fm_angle(gpumap_frame frame) {
  const auto& job = radio_job<radio_level_job>(frame);
  const float2* in = radio_iq(frame.in.plane[0]);
  for (gpumap_u64 n = gpumap_thread(); n < job.count; n += gpumap_thread_count()) {
    const float2 before = in[n];
    const float angle = radio_angle(radio_multiply(in[n + 1], make_float2(before.x, -before.y)));
    radio_iq(frame.out.plane[0])[n] = make_float2(job.scale * angle, 0.0f);
  }
}
